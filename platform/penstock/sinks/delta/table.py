"""Look at a Delta table: whether rows fit it, and what a commit into it takes.

delta-spark compares rows with NOT NULL and CHECK only while it publishes them. By then the batch is committed, and
each start would publish it again (SEMANTICS 9.6).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.checkpoint.storage.local import storage_errors
from penstock.errors import (
    PenstockError,
    SinkError,
    SinkForgets,
    SinkSchemaMismatch,
    SinkValueRefused,
)
from penstock.sinks.delta.log_damage import refuse_shortened, refuse_unreadable
from penstock.sinks.delta.log_entry import actions_of
from penstock.sinks.delta.restored_version import version_put_back

if TYPE_CHECKING:
    from deltalake import DeltaTable, Field

__all__ = [
    "PLAIN_WRITER",
    "asked_of_writers",
    "batch_shown",
    "has_delta",
    "is_plain",
    "load",
    "named_errors",
    "refuse_unfit",
    "refuse_values",
]

PLAIN_WRITER = 2
"""The newest writer protocol without table features: appending files is all it asks for."""
_CHECK = "delta.constraints."
_ASKS_FOR_MORE = (_CHECK, "delta.columnMapping.mode", "delta.enableChangeDataFeed", "delta.feature.")
_LONGEST = 300
"""Characters of a row in an error."""
_FORGETS = "delta.setTransactionRetentionDuration"
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")
"""What delta-rs says of an error of the system, whatever the class of its own."""
_DRAWN = re.compile(r"\s*\x1b\[\d+m↳\x1b\[0m\s*")
"""What delta-rs draws between an error and its cause."""


def refuse_unfit(table: DeltaTable, schema: pa.Schema, *, partition_by: Sequence[str], where: str) -> None:
    """Raise SinkSchemaMismatch where rows do not fit a table, and SinkForgets where it does not remember batches.

    `partition_by` are the columns that it must be partitioned by, none where any will do.
    """
    kept = table.metadata().configuration.get(_FORGETS)
    if kept is not None:
        raise SinkForgets(f"the table forgets after {kept} which batches it has", where=where)
    columns = pa.schema(table.schema().to_arrow())
    if (there := _facts(columns)) != (wanted := _facts(_as_delta(schema))):
        both = f"the stream has {_said(wanted)} and the table has {_said(there)}"
        raise SinkSchemaMismatch(f"{_difference(dict(wanted), dict(there))}: {both}", where=where)
    partitions = table.metadata().partition_columns
    if partition_by and list(partition_by) != partitions:
        raise SinkSchemaMismatch(
            f"partition_by is {list(partition_by)} and the table is partitioned by {partitions}", where=where
        )


def _rules_of(table: DeltaTable) -> dict[str, str]:
    """Return what the table asks of rows, by how a person calls it: SQL that must be true."""
    fields = table.schema().fields
    rules = {
        f"column {field.name!r} is NOT NULL": f"`{field.name}` IS NOT NULL" for field in fields if not field.nullable
    }
    for name, sql in table.metadata().configuration.items():
        if name.startswith(_CHECK):
            rules[f"constraint {name.removeprefix(_CHECK)!r}, {sql}"] = sql
    for field in fields:
        invariant = field.metadata.get("delta.invariants")
        if invariant is not None:
            sql = json.loads(str(invariant))["expression"]["expression"]
            rules[f"column {field.name!r} must meet {sql}"] = sql
    return rules


def refuse_values(table: DeltaTable, paths: Sequence[Path], spark: Any, *, where: str) -> None:
    """Raise SinkValueRefused, with rule and row, where a row in Parquet files breaks a rule of the table."""
    rules = _rules_of(table)
    if not rules or not paths:
        return
    rows = spark.read.parquet(*map(str, paths))
    for name, sql in rules.items():
        broken = rows.where(f"NOT coalesce(({sql}), false)").limit(1).collect()
        if broken:
            row = str(broken[0].asDict())
            shown = row if len(row) <= _LONGEST else row[:_LONGEST] + "…"
            raise SinkValueRefused(f"the table does not take a row, because {name}: {shown}", where=where, rule=name)


@contextmanager
def named_errors(path: str | Path) -> Iterator[None]:
    """Turn what the system and delta-rs say of a table into errors of a store, or else into SinkError.

    None of them says that a commit did not land: its answer may have been lost.
    """
    from deltalake.exceptions import DeltaError

    with storage_errors(str(path)):
        try:
            yield
        except PenstockError:
            raise
        except (OSError, DeltaError) as why:
            number = _SYSTEM_ERROR.search(str(why))
            if number is not None:
                raise OSError(int(number[1]), os.strerror(int(number[1]))) from why
            if isinstance(why, OSError) and why.errno is not None:
                raise
            message = _DRAWN.sub(": ", str(why).strip()).splitlines()[0]
            raise SinkError(f"delta-rs failed: {message}", where=str(path)) from why


def _as_delta(schema: pa.Schema) -> pa.Schema:
    """Return the schema as a table would give it back, where the items of a list have another name."""
    from deltalake import Schema

    return pa.schema(Schema.from_arrow(schema).to_arrow())


def has_delta(spark: Any) -> bool:
    """Return whether a Spark session can write Delta tables."""
    return "DeltaSparkSessionExtension" in str(spark.conf.get("spark.sql.extensions", ""))


def load(path: Path) -> DeltaTable | None:
    """Return the table at a path, None where there is none; raises SinkRefused where its log is damaged."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    with named_errors(path):
        if not DeltaTable.is_deltatable(str(path)):
            return None
        try:
            table = DeltaTable(str(path))
        except DeltaError:
            refuse_unreadable(path)
            raise
        refuse_shortened(path)
        return table


def batch_shown(table: DeltaTable, path: Path, app: str) -> int | None:
    """Return the newest batch of an app whose rows a table shows, None for none (SEMANTICS 9.5).

    The table keeps the number of a batch when somebody else puts back a version from before it, and its rows are gone.
    So the entries since the app's last commit are looked at for that. A driver's own truncation is in the job's log.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    noted = table.transaction_version(app)
    version = newest = table.version()
    while noted is not None and version >= 0 and (actions := actions_of(path, version)) is not None:
        apps = {action["txn"]["appId"]: int(action["txn"]["version"]) for action in actions if "txn" in action}
        if app in apps:
            return apps[app]
        own = any(name.endswith("/truncate") for name in apps)
        put_back = None if own else version_put_back(path, version, actions)
        version, newest = (version - 1, newest) if put_back is None else (put_back, put_back)
    if newest == table.version():
        return noted
    with suppress(DeltaError):  # of a version whose entries were cleaned nobody can tell
        noted = DeltaTable(str(path), version=newest).transaction_version(app)
    return noted


def is_plain(table: DeltaTable) -> bool:
    """Return whether an append of files is all that a commit to the table takes."""
    return (
        table.protocol().min_writer_version <= PLAIN_WRITER
        and not table.metadata().partition_columns
        and not any(_asks(field) for field in table.schema().fields)
        and not asked_of_writers(table)
    )


def asked_of_writers(table: DeltaTable) -> list[str]:
    """Return the settings for which a commit has to do more than name files."""
    settings = table.metadata().configuration
    return [n for n, v in settings.items() if n.startswith(_ASKS_FOR_MORE) and v not in ("none", "false")]


def _asks(field: Field) -> bool:
    """Return whether a column, or one inside it, wants its values looked at before they are taken."""
    return not field.nullable or "delta.invariants" in field.metadata or _asks_inside(field.type)


def _asks_inside(kind: Any) -> bool:
    inside = (getattr(kind, name, None) for name in ("element_type", "key_type", "value_type"))
    return any(_asks(field) for field in getattr(kind, "fields", ())) or any(
        _asks_inside(inner) for inner in inside if inner is not None
    )


def _facts(schema: pa.Schema) -> list[tuple[str, str]]:
    return [
        (f.name, str(f.type).replace("large_", "").replace("string_view", "string").replace("binary_view", "binary"))
        for f in schema
    ]


def _said(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def _difference(stream: Mapping[str, str], table: Mapping[str, str]) -> str:
    """Return in words which columns differ: tables have dozens, and one of them is another."""
    lacking = [column for column in stream.items() if column[0] not in table]
    further = [column for column in table.items() if column[0] not in stream]
    other = [
        (name, f"is {table[name]} and not {kind}") for name, kind in stream.items() if table.get(name, kind) != kind
    ]
    parts = {"the table lacks": lacking, "only the table has": further, "in the table": other}
    found = [f"{words} {_said(columns)}" for words, columns in parts.items() if columns]
    return "; ".join(found) or "the table has the columns in another order"
