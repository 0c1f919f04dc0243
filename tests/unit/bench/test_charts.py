"""The pictures of docs/performance.md: there, small, and made from the figures beside them."""

from __future__ import annotations

import re

import pytest

from bench.charts import DRAWN, picture
from bench.page import CHARTS, PAGE

BYTES_MAX = 80_000
PNG = b"\x89PNG\r\n\x1a\n"


def test_page_shows_every_picture_that_is_drawn_and_no_other() -> None:
    assert sorted(re.findall(r"\]\(charts/(\w+)\.png\)", PAGE.read_text())) == sorted(DRAWN)


@pytest.mark.parametrize("name", DRAWN)
def test_picture_is_there_and_small(name: str) -> None:
    data = (CHARTS / f"{name}.png").read_bytes()
    assert data.startswith(PNG)
    assert len(data) < BYTES_MAX


@pytest.mark.parametrize("name", DRAWN)
def test_picture_can_be_made_from_its_figures(name: str) -> None:
    """Every part of it shows something; rendering it would cost the suite seconds."""
    parts = picture(name).axes
    assert parts
    assert all(part.containers for part in parts)
