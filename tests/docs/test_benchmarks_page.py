"""The page of benchmarks names those that there are."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.__main__ import PROGRAMS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"


def test_the_page_names_every_benchmark() -> None:
    """In the order in which `make bench` runs them."""
    said = re.search(r"# one of (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert said is not None
    assert list(PROGRAMS) == said[1].split(", ")
