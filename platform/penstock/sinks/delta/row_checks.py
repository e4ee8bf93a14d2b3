"""Find rows that a Delta table would refuse, before a batch is committed (SEMANTICS 9.6).

delta-spark compares rows with NOT NULL and CHECK only while it publishes them. By then the batch is committed, and
each start would publish it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import SinkValueRefused

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["refuse_values", "rules_of"]

_CHECK = "delta.constraints."
_LONGEST = 300
"""Characters of a row in an error."""


def rules_of(table: DeltaTable) -> dict[str, str]:
    """Return what the table asks of rows, by how a person calls it: SQL that must be true."""
    rules = {f"column {field.name!r} is NOT NULL": f"`{field.name}` IS NOT NULL" for field in _required(table)}
    for name, sql in table.metadata().configuration.items():
        if name.startswith(_CHECK):
            rules[f"constraint {name.removeprefix(_CHECK)!r}, {sql}"] = sql
    for field in table.schema().fields:
        invariant = field.metadata.get("delta.invariants")
        if invariant is not None:
            sql = json.loads(str(invariant))["expression"]["expression"]
            rules[f"column {field.name!r} must meet {sql}"] = sql
    return rules


def refuse_values(table: DeltaTable, paths: Sequence[Path], spark: Any, *, where: str) -> None:
    """Raise SinkValueRefused, with rule and row, where a row in Parquet files breaks a rule of the table."""
    rules = rules_of(table)
    if not rules or not paths:
        return
    rows = spark.read.parquet(*map(str, paths))
    for name, sql in rules.items():
        broken = rows.where(f"NOT coalesce(({sql}), false)").limit(1).collect()
        if broken:
            row = str(broken[0].asDict())
            shown = row if len(row) <= _LONGEST else row[:_LONGEST] + "…"
            raise SinkValueRefused(f"the table does not take a row, because {name}: {shown}", where=where, rule=name)


def _required(table: DeltaTable) -> Iterator[Any]:
    return (field for field in table.schema().fields if not field.nullable)
