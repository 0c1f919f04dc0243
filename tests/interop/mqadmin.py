"""The stock operator's tool, mqadmin of RocketMQ 4.9.3, and what the suite does with it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from .builds import HERE, build_lock, maven_class_path
from .processes import WaitTimeoutError, wait_until

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
    return home


def mqadmin_command(*arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    """Return the command line of mqadmin with these arguments and JVM options."""
    class_path = maven_class_path(HERE / "java" / "broker-pom.xml", "4.9.3")
    home = prepare_home()
    return [
        "java", "-Xmx256m", *options, f"-Drocketmq.home.dir={home}", f"-Duser.home={home}",
        "-cp", class_path, "org.apache.rocketmq.tools.command.MQAdminStartup", *arguments,
    ]  # fmt: skip


def mqadmin(*arguments: str) -> str:
    """Run the stock mqadmin 4.9.3 and return what it printed.

    Raises:
        AssertionError: it failed; the text holds its output.
    """
    done = subprocess.run(
        mqadmin_command(*arguments),
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
        wait_until(has_route, f"the route of {topic}", seconds=40)
    except WaitTimeoutError as error:
        error.add_note(f"topic {topic} was accepted but the name server does not serve it")
        raise
