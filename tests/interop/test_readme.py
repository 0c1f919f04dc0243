"""The Java program of README.md, compiled and run as it stands, with Apache's client."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.builds import HERE, maven_class_path, run_tool
from tests.interop.conftest import LedgerMQStarter

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.parametrize("version", ["4.9.3", "5.3.3"])
def test_java_program_sends_and_ends(
    version: str, start_ledgermq: LedgerMQStarter, tmp_path: Path
) -> None:
    [program] = re.findall(r"^```java\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    cluster = start_ledgermq()
    source = tmp_path / "Orders.java"
    source.write_text(program.replace("127.0.0.1:9876", cluster.name_server))
    class_path = maven_class_path(HERE / "java" / "client-pom.xml", version)
    run_tool(["javac", "-cp", class_path, str(source)], cwd=tmp_path)
    done = subprocess.run(
        ["java", f"-Duser.home={tmp_path}", "-cp", f"{tmp_path}:{class_path}", "Orders"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sendStatus=SEND_OK" in done.stdout
