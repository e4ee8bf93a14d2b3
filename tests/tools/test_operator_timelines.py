"""`tools/operator_timelines.py`: the timelines of docs/operators are drawn of runs of the Harness."""

from __future__ import annotations

import pytest

from tools.drawings import PICTURES
from tools.operator_timelines import SCENARIOS, picture

pytestmark = pytest.mark.spark
PAGES = PICTURES.parent / "operators"


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_timeline_is_what_the_operator_does(name):
    """A change of what comes out changes the picture, and somebody looks at it."""
    made = picture(name)
    drawn = (PICTURES / f"operator-{name}.svg").read_text(encoding="utf-8")
    assert drawn == made, "run: python -m tools.operator_timelines --write"


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_page_of_operators_shows_the_timeline(name):
    """Each of them, on one page."""
    pages = [
        page.name for page in PAGES.glob("*.md") if f"](../pictures/operator-{name}.svg)" in page.read_text("utf-8")
    ]
    assert len(pages) == 1, pages
