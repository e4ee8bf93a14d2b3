"""`tools/rate_pictures.py`: the pictures of docs/rates.md are those that a run of the simulator draws."""

from __future__ import annotations

import pytest

from tools.drawings import PICTURES
from tools.rate_pictures import DRAWINGS, backlog_table, burst_table

PAGE = PICTURES.parent / "rates.md"


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_is_what_the_simulator_draws(name):
    """A change of an estimator changes the pictures, and somebody looks at them."""
    assert (PICTURES / name).read_text(encoding="utf-8") == DRAWINGS[name](), (
        "run: python -m tools.rate_pictures --write"
    )


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_page_shows_the_picture(name):
    """Each of them."""
    assert f"](pictures/{name})" in PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_numbers_of_the_page_are_those_of_the_simulator():
    """The tables of bursts and of a backlog, line by line."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in (*burst_table(), *backlog_table()) if line not in lines] == [], (
        "see: python -m tools.rate_pictures"
    )
