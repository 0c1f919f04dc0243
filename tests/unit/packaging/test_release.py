"""Steps of a release: what they refuse, and that a step left out is no success."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHANGELOG = "# Changelog\n\n## 2.1.0\n\n- new\n\n## 2.0.0 (2026-01-01)\n\n- old\n"


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, for a project in a folder of its own."""
    spec = importlib.util.spec_from_file_location("release", ROOT / "packaging/release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "DIST", tmp_path / "dist")
    (tmp_path / "ledgermq").mkdir()
    (tmp_path / "ledgermq/__init__.py").write_text('__version__ = "2.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / "dist").mkdir()
    monkeypatch.setattr(module, "run", rooted(module.run, tmp_path))
    return module


def rooted(run: Any, folder: Path) -> Any:
    def run_there(*words: object, cwd: Path = folder, **variables: str) -> Any:
        return run(*words, cwd=cwd, **variables)

    return run_there


def test_one_version_passes_with_its_tag(release: Any) -> None:
    assert release.check_version("v2.1.0") == "2.1.0, as the tag"
    assert release.check_version(None) == "2.1.0; no tag to compare"


@pytest.mark.parametrize(
    ("changelog", "tag", "complaint"),
    [
        (CHANGELOG.replace("## 2.1.0", "## 2.2.0"), None, r"is 2\.2\.0, the package is 2\.1\.0"),
        (CHANGELOG, "v2.0.0", r"must be v2\.1\.0"),
        (CHANGELOG, "2.1.0", r"must be v2\.1\.0"),
        (CHANGELOG.replace("2.1.0", "2.1.0 (not yet released)"), "v2.1.0", "not yet released"),
        ("# Changelog\n", None, "no heading of a version"),
    ],
)
def test_versions_that_differ_are_refused(
    release: Any, tmp_path: Path, changelog: str, tag: str | None, complaint: str
) -> None:
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    with pytest.raises(release.ReleaseError, match=complaint):
        release.check_version(tag)


def test_notes_are_the_newest_part_alone(release: Any, tmp_path: Path) -> None:
    release.cut_notes()
    assert (tmp_path / "dist/NOTES.md").read_text() == "# LedgerMQ 2.1.0\n\n- new\n"


def test_a_tree_with_changes_is_refused(release: Any, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    with pytest.raises(release.ReleaseError, match=r"not committed: .*CHANGELOG\.md"):
        release.check_tree()


def test_files_that_differ_when_made_again_are_refused(release: Any, tmp_path: Path) -> None:
    (tmp_path / "packaging").mkdir()
    program = "from pathlib import Path\nimport time\n"
    program += "Path('dist/same.whl').write_text('x')\n"
    program += "Path('dist/other.whl').write_text(str(time.time_ns()))\n"
    (tmp_path / "packaging/wheels.py").write_text(program)
    with pytest.raises(release.ReleaseError, match=r"when made again: other\.whl$"):
        release.make_files()


def test_sums_are_those_that_sha256sum_reads(release: Any, tmp_path: Path) -> None:
    (tmp_path / "dist/a.whl").write_bytes(b"a")
    assert release.write_sums() == "1 files"
    assert release.write_sums() == "1 files"
    (tmp_path / "dist/a.whl").write_bytes(b"b")
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path / "dist")
    assert done.returncode == 1


def test_a_failed_step_fails_the_whole_and_one_left_out_is_counted(
    release: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["release.py", "--only", "version,image,metadata"])
    monkeypatch.setattr(release.shutil, "which", lambda name: None)
    assert release.main() == 1
    said = capsys.readouterr().out
    assert "image     left out  needs mmdebstrap and buildah" in said
    assert "metadata  FAILED    dist/ holds no wheels" in said
    assert said.endswith("3 steps, 1 failed, 1 left out\n")
