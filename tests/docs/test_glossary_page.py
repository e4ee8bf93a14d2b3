"""docs/glossary.md: one row a term, and the way to it from the pages that people open first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("\n## ")[1:]


def terms(section: str) -> list[str]:
    """Return the first cell of each row of a section's table, without the row of dashes and the head."""
    return re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)[1:]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.splitlines()[0])
def test_terms_are_in_alphabetical_order(section):
    """A reader finds a term without a search."""
    assert terms(section) == sorted(terms(section), key=str.lower) != []


def test_no_term_is_defined_twice():
    """One term, one meaning: also where a row names two of them."""
    words = [word for section in SECTIONS for term in terms(section) for word in term.split(", ")]
    assert len(words) == len(set(words))


@pytest.mark.parametrize("page", ["README.md", "docs/README.md"])
def test_the_first_pages_lead_to_it(page):
    """The words are looked up from there."""
    assert "glossary.md)" in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "term",
    ["watermark", "late data", "side output", "savepoint", "snapshot", "state TTL", "exactly-once", "dead letter"],
)
def test_the_terms_that_people_search_for_are_there(term):
    """By the names of Flink, Spark and Kafka."""
    assert term in {word for section in SECTIONS for row in terms(section) for word in row.split(", ")}
