"""`tools/timeline.py`: rows and windows stand where their times are, and nothing is outside of the picture."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from tools.timeline import Bar, Dot, Lane, Timeline, drawn

SPACE = "{http://www.w3.org/2000/svg}"
MADE = Timeline(
    title="a window & its rows",
    inputs=[Lane(name="rows", dots=[Dot(at=at, label=f"{at}", batch=0) for at in (0, 1, 50, 100)])],
    bars=[Bar(start=0, end=50, label="n 3", batch=0), Bar(start=90, end=100, label="a long label", batch=1)],
    watermarks=[None, 99],
    ticks=[0, 50, 100],
)


def shapes(kind: str) -> list[dict[str, str]]:
    """Return the attributes of all shapes of a kind."""
    return [shape.attrib for shape in ET.fromstring(drawn(MADE)).iter(f"{SPACE}{kind}")]  # noqa: S314 - drawn above


def test_a_window_is_as_long_as_its_time():
    """Half of the axis for half of its time; a row in the middle stands at its end."""
    rects = [{name: float(rect[name]) for name in ("x", "y", "width", "height")} for rect in shapes("rect")]
    dots, bars = rects[:4], rects[4:]
    assert bars[0]["width"] == (dots[3]["x"] - dots[0]["x"]) / 2
    assert dots[2]["x"] + 4 == bars[0]["x"] + bars[0]["width"]


def test_nothing_is_outside_of_the_picture():
    """Also the labels of the last row, the last window and the last watermark, whose width is estimated."""
    root = ET.fromstring(drawn(MADE))  # noqa: S314 - drawn above
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for words in root.iter(f"{SPACE}text"):
        assert 0 <= float(words.attrib["x"]) <= width - 7 * len(words.text or ""), words.text
        assert float(words.attrib["y"]) <= height


def test_a_watermark_that_is_not_there_yet_is_not_drawn():
    """Only the one of the second batch."""
    assert "watermark 0" not in drawn(MADE)
    assert "watermark 1" in drawn(MADE)
