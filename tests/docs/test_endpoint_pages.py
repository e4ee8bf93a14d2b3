"""The pages on sources and sinks name each of them (CONTRIBUTING, "Adding a source or a sink")."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from penstock import sinks, sources
from penstock.sinks.base import Sink
from penstock.sources.base import Source

DOCS = Path(__file__).resolve().parents[2] / "docs"


def named(page: str) -> set[str]:
    """Return the names in the first column of a page's first table, without case and underscores."""
    rows = page[page.index("\n|") :].strip().split("\n\n")[0].splitlines()[2:]
    return {name.replace("_", "").lower() for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


@pytest.mark.parametrize(("module", "base"), [(sources, Source), (sinks, Sink)])
def test_the_first_table_of_the_page_has_a_row_for_each(module: ModuleType, base: type) -> None:
    """STYLE 2.17: what a job can import, a reader finds where the others are."""
    things = {name: getattr(module, name) for name in module.__all__}
    there = {name for name, thing in things.items() if base in getattr(thing, "__mro__", ())}
    page = (DOCS / f"{module.__name__.rpartition('.')[2]}.md").read_text(encoding="utf-8")
    assert there
    assert {name for name in there if name.lower() not in named(page)} == set()
