"""The Java program of README.md, compiled and run as it stands, with Apache's client."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.builds import HERE, maven_class_path, run_tool
from tests.interop.closed import APPLICATION, is_on, java_options
from tests.interop.conftest import LedgerMQStarter

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.parametrize("version", ["4.9.3", "5.3.3"])
def test_java_program_sends_and_ends(
    version: str, start_ledgermq: LedgerMQStarter, tmp_path: Path
) -> None:
    [program] = re.findall(r"^```java\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    cluster = start_ledgermq()
    source = tmp_path / "Orders.java"
    program = program.replace("127.0.0.1:9876", cluster.name_server)
    source.write_text(_with_account(program) if is_on() else program)
    class_path = maven_class_path(HERE / "java" / "client-pom.xml", version)
    run_tool(["javac", "-cp", class_path, str(source)], cwd=tmp_path)
    words = [*java_options(), f"-Duser.home={tmp_path}", "-cp", f"{tmp_path}:{class_path}"]
    done = subprocess.run(["java", *words, "Orders"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sendStatus=SEND_OK" in done.stdout


def _with_account(program: str) -> str:
    """The program as it is changed for a closed cluster: its producer signs."""
    plain = 'new DefaultMQProducer("my-producers")'
    assert plain in program
    package = "org.apache.rocketmq.acl.common"
    account = f'"{APPLICATION.access_key}", "{APPLICATION.secret_key}"'
    hook = f"new {package}.AclClientRPCHook(new {package}.SessionCredentials({account}))"
    return program.replace(plain, f'new DefaultMQProducer("my-producers", {hook})')
