"""The recorded frames are whole, and the manifest tells the truth about them."""

from __future__ import annotations

import json

from tests.interop.builds import HERE
from tests.interop.wire_tap import parse_head

FRAMES = HERE / "frames"


def test_the_manifest_lists_every_recorded_frame() -> None:
    listed = {line["file"] for line in json.loads((FRAMES / "manifest.json").read_text())}
    assert listed == {path.relative_to(FRAMES).as_posix() for path in FRAMES.rglob("*.bin")}


def test_every_recorded_frame_says_what_the_manifest_says() -> None:
    for line in json.loads((FRAMES / "manifest.json").read_text()):
        raw = (FRAMES / line["file"]).read_bytes()
        serialize, code, opaque, flag, _ = parse_head(raw)
        assert int.from_bytes(raw[:4], "big") + 4 == len(raw) == line["bytes"], line["file"]
        assert (serialize, code, opaque, flag) == tuple(
            line[name] for name in ("serialize", "code", "opaque", "flag")
        ), line["file"]
        assert (flag & 1 == 1) == (line["kind"] == "response"), line["file"]
