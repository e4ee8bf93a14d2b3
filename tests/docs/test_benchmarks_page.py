"""The page of benchmarks names those that there are, and says when each figure was measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.__main__ import PROGRAMS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
SECTIONS = PAGE.read_text(encoding="utf-8").split("## Results\n")[1].split("\n### ")[1:]
COMMIT = re.compile(r"`[0-9a-f]{7}`")
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")


def test_the_page_names_every_benchmark() -> None:
    """In the order in which `make bench` runs them."""
    listed = re.search(r"# one of (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed is not None
    assert list(PROGRAMS) == listed[1].split(", ")


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.splitlines()[0])
def test_each_figure_has_its_commit_and_its_date(section: str) -> None:
    """One line holds for a whole section, unless its table has a column of its own; then each item says its own."""
    head, line, *rest = [line for line in section.splitlines() if line]
    assert line.startswith("Measured 20"), head
    own = "| measured |" in section
    assert bool(COMMIT.search(line)) is not own
    for figure in rest:
        if own and re.match(r"(\||- ).*\d", figure):
            assert COMMIT.search(figure), figure
            assert DATE.search(figure), figure


def test_no_figure_is_outside_the_results() -> None:
    """But for the summary, which is of the tables below, and how long the benchmarks take, which has its commit."""
    before = PAGE.read_text(encoding="utf-8").split("## Results\n")[0]
    timed = [line for line in before.splitlines() if re.search(r"\d ms\b|\dx\b|\bhour\b", line)]
    assert len(timed) == 1
    assert COMMIT.search(timed[0])
    assert DATE.search(timed[0])
