"""`tools/drawings.py`: the pictures in docs/pictures are those that the code draws, and pages show them."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from tools.drawings import DRAWINGS, PICTURES, box, line, svg

WIDEST = 8.0
"""Pixels of the widest letter on average, at 13 px."""


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_is_what_the_code_draws(name):
    """Nobody edits it by hand."""
    assert (PICTURES / name).read_text(encoding="utf-8") == DRAWINGS[name](), "run: python -m tools.drawings --write"


@pytest.mark.parametrize("name", DRAWINGS)
def test_nothing_is_drawn_outside_of_a_picture(name):
    """Neither boxes nor text, whose width is estimated."""
    root = ET.fromstring(DRAWINGS[name]())  # noqa: S314 - drawn above
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    space = "{http://www.w3.org/2000/svg}"
    for shape in root.iter(f"{space}rect"):
        x, y, wide, high = (float(shape.attrib[side]) for side in ("x", "y", "width", "height"))
        assert (x + wide <= width, y + high <= height) == (True, True)
    for words in root.iter(f"{space}text"):
        assert float(words.attrib["x"]) + len(words.text or "") * WIDEST * 0.9 <= width + 8, words.text
        assert float(words.attrib["y"]) <= height


@pytest.mark.parametrize(("name", "page"), [("state.svg", "state-segments.md"), ("plan.svg", "glossary.md")])
def test_a_page_shows_the_picture(name, page):
    """Where its terms are explained."""
    assert re.search(
        rf"!\[[^\]]+\]\(pictures/{re.escape(name)}\)", (PICTURES.parent / page).read_text(encoding="utf-8")
    )


def test_text_in_a_picture_is_escaped():
    """A label may have any character."""
    drawn = svg(10, 10, 'a<"b', box(0, 0, 5, 5, "s", "c & d"), line("a", (0, 0.5), (1, 2)))
    root = ET.fromstring(drawn)  # noqa: S314 - drawn above
    assert root.attrib["aria-label"] == 'a<"b'
    assert "c &amp; d" in drawn
    assert 'd="M0 0.5 L1 2"' in drawn
