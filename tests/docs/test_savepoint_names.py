"""The names of savepoints in commands of the pages are names that the commands take."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.graph.names import is_name

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"penstock save [a-z]\S* ([a-z]\S*)|saved=([a-z][\w-]*)")


def test_names_of_savepoints_are_names() -> None:
    """SEMANTICS 10.2: who copies a command from a page gets a savepoint, not PEN-JOB-002."""
    texts = [page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md"))]
    names = {one or other for text in texts for one, other in EXAMPLE.findall(text)}
    assert [name for name in sorted(names) if not is_name(name)] == []
    assert "before_upgrade" in names
