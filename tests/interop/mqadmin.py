"""The stock operator's tool, mqadmin of RocketMQ 4.9.3, and what the suite does with it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from tests.waiting import wait_until

from .builds import HERE, build_lock, maven_class_path
from .closed import java_options, tools_yml

CLUSTER_NAME: Final = "DefaultCluster"
# Apache's programs refuse to start without a logging configuration below their home directory.
LOGBACK: Final = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""

_TOOL_SECONDS: Final = 60.0


def prepare_home() -> Path:
    """Return a home directory for Apache's programs, with the configuration that they want."""
    with build_lock("mqadmin-home") as home:
        conf = home / "conf"
        conf.mkdir(exist_ok=True)
        (conf / "logback_tools.xml").write_text(LOGBACK)
        (conf / "tools.yml").write_text(tools_yml())
    return home


def mqadmin_command(
    *arguments: str, options: tuple[str, ...] = (), home: Path | None = None
) -> list[str]:
    """Return the command line of mqadmin with these arguments and JVM options.

    `home` has its configuration, and its account in tools.yml; None: that of all tests.
    """
    class_path = maven_class_path(HERE / "java" / "broker-pom.xml", "4.9.3")
    home = prepare_home() if home is None else home
    return [
        "java", "-Xmx256m", *options, *java_options(),
        f"-Drocketmq.home.dir={home}", f"-Duser.home={home}",
        "-cp", class_path, "org.apache.rocketmq.tools.command.MQAdminStartup", *arguments,
    ]  # fmt: skip


def mqadmin(*arguments: str, home: Path | None = None) -> str:
    """Run the stock mqadmin 4.9.3 and return what it printed; `home` as for `mqadmin_command`.

    Raises:
        AssertionError: it failed; the text holds its output.
    """
    done = subprocess.run(
        mqadmin_command(*arguments, home=home),
        capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False,
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert done.returncode == 0 and "Exception" not in output, f"mqadmin {arguments}:\n{output}"
    return output


def make_topic(namesrv: str, topic: str, queues: int) -> None:
    """Create a topic by mqadmin on all brokers of the cluster; wait until its route is complete."""
    mqadmin(
        "updateTopic", "-n", namesrv, "-c", CLUSTER_NAME, "-t", topic,
        "-r", str(queues), "-w", str(queues),
    )  # fmt: skip

    def has_route() -> bool:
        try:
            route = mqadmin("topicRoute", "-n", namesrv, "-t", topic)
        except AssertionError:
            return False
        return f'"writeQueueNums":{queues}' in "".join(route.split())

    try:
        wait_until(has_route, what=f"the route of {topic}", deadline_s=40)
    except AssertionError as error:
        error.add_note(f"topic {topic} was accepted but the name server does not serve it")
        raise
