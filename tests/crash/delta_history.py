"""Read from a Delta table's own log which batches it was given."""

from __future__ import annotations

import json
from pathlib import Path


def published_batches(table: Path) -> list[int]:
    """Return the batches that the history of a table names, oldest first, one for each commit that has one."""
    actions = [
        json.loads(line)
        for path in sorted((table / "_delta_log").glob("*.json"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return [action["txn"]["version"] for action in actions if "txn" in action]


def named_files(table: Path) -> set[str]:
    """Return the data files that the history of a table names."""
    actions = [
        json.loads(line)
        for path in sorted((table / "_delta_log").glob("*.json"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return {action["add"]["path"] for action in actions if "add" in action}
