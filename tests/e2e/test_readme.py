"""README.md as a newcomer types it: its commands in a shell, its program in the file it names."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("docs/*.md")}
ENVIRONMENT = Path(sys.prefix)


def blocks(text: str, language: str = "") -> list[str]:
    """What stands between fences of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(first: str) -> str:
    """The block of shell commands that begins so."""
    [found] = [block for block in blocks(README) if block.startswith(first)]
    return found


@pytest.mark.skipif(
    not (ENVIRONMENT / "bin/activate").is_file(), reason="these tests run in no virtual environment"
)
def test_first_message_as_typed(name_server: str, tmp_path: Path) -> None:
    """In a shell that knows neither the package nor its command before."""
    [program] = blocks(README, "python")
    assert README.index("program below as `hello.py`") < README.index("python hello.py")
    program = program.replace("127.0.0.1:9876", name_server)
    (tmp_path / "hello.py").write_text(program)
    (tmp_path / ".venv").symlink_to(ENVIRONMENT)
    kept = {key: os.environ[key] for key in ("PYTHONPATH", "LEDGERMQ_PURE") if key in os.environ}
    done = subprocess.run(
        ["sh", "-ec", commands(". .venv/bin/activate")],
        cwd=tmp_path,
        # Where the commands look for a cluster unless they are told.
        env={"PATH": "/usr/bin:/bin", "NAMESRV_ADDR": name_server, **kept},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("SendResult(") and lines[1] == "b'hello'"
    assert {"hello", "hello again"} <= {*lines[2:]}


def test_first_message_leaves_the_topics_of_the_tutorial_alone() -> None:
    """It goes on in the same cluster, where it creates its topics and bills what is in them."""
    created = re.findall(r"ledgermq topics create (\S+)", PAGES["tutorial.md"])
    assert "orders" in created
    typed = commands(". .venv/bin/activate") + blocks(README, "python")[0]
    assert not [topic for topic in created if re.search(rf'-t {topic}\b|"{topic}"', typed)]


def test_targets_of_make_are_there() -> None:
    names = {*re.findall(r"\bmake\s+([a-z-]+)", README)}
    assert names >= {"run", "test", "interop", "bench"}
    targets = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    assert names <= targets


def test_no_page_installs_what_is_not_released() -> None:
    pages = {"README.md": README, "CHANGELOG.md": (ROOT / "CHANGELOG.md").read_text(), **PAGES}
    # What programs say when something is missing is followed, too.
    pages |= {str(path): path.read_text() for path in ROOT.glob("ledgermq/**/*.py")}
    for name, text in pages.items():
        assert not re.search(r"pip install '?ledgermq", text), name
    assert "pip install /path/to/ledgermq" in README


def test_the_java_program_is_whole() -> None:
    """That it compiles and sends is shown with Apache's client, in tests/interop."""
    [program] = blocks(README, "java")
    assert program.count("import org.apache.rocketmq") == 2
    assert "public static void main" in program and "producer.shutdown();" in program
