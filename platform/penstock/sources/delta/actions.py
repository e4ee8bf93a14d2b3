"""Say what a commit of a Delta table means for who reads it as a stream: pure functions over the entries of its log.

The entries are those of the Delta protocol ("Actions"): one JSON object a line, with one member that names the action.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

__all__ = [
    "Actions",
    "Commit",
    "DataFile",
    "Kind",
    "Table",
    "active_files",
    "commit_of",
    "data_file",
    "time_of",
    "unreadable_part",
]

Actions = Sequence[Mapping[str, Any]]
"""What a commit did, as its entry in the log says it."""
Kind = str
"""What the rows of a file are in a change data feed: `insert`, `delete`, or `cdc` where each row says it itself."""

_CHANGE_FEED = "delta.enableChangeDataFeed"
_NEWEST_READER = 3
_MAPPING = "delta.columnMapping.mode"
_READ = frozenset({"timestampNtz", "columnMapping", "deletionVectors", "vacuumProtocolCheck"})
"""Table features that the source reads. Column mapping and deletion vectors may be allowed, and not be in use."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file whose rows a stream reads.

    Attributes:
        version: The version of the table that it is read for.
        index: Its number among the files of that version.
        path: Where it is below the table.
        size: Bytes.
        rows: How many rows it has; None where the log does not say.
        values: Of each partition column the text of its value; one that is null, or missing, is null.
        kind: What its rows are in a change data feed.
        time: When the version was committed, milliseconds since 1970; None where the log does not say.
    """

    version: int
    index: int
    path: str
    size: int
    rows: int | None
    values: Mapping[str, str | None]
    kind: Kind = "insert"
    time: int | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """What the log says of a table beside its files: the `metaData` and the `protocol` in force."""

    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]

    @property
    def id(self) -> str:
        """What no other table has."""
        return str(self.metadata["id"])

    @property
    def columns(self) -> str:
        """The columns as JSON, in the form that Spark has for a StructType."""
        return str(self.metadata["schemaString"])

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns whose values are in the log instead of the files."""
        return tuple(self.metadata.get("partitionColumns") or ())

    @property
    def has_change_feed(self) -> bool:
        """Whether commits write down which rows they change."""
        return _settings(self.metadata).get(_CHANGE_FEED, "false").lower() == "true"


@dataclass(frozen=True, slots=True)
class Commit:
    """What a version means for a stream.

    Attributes:
        files: What is read of it, in order.
        rewrites: What it does to rows that were there, in words; None where it only adds rows.
        problem: Why a file of it cannot be read, in words; None for nothing.
        metadata: The table's new `metaData`, None where it stays.
        protocol: The table's new `protocol`, None where it stays.
    """

    files: tuple[DataFile, ...] = ()
    rewrites: str | None = None
    problem: str | None = None
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None


def commit_of(version: int, actions: Actions, *, changes: bool) -> Commit:
    """Return what a commit means to who reads new rows, or with `changes` all changes.

    Files that are only rearranged, as by compaction, are no change of data. In a change data feed the files of `cdc`
    actions are all there is, if there are any. Otherwise added rows were inserted, and removed ones deleted.
    """
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for action in actions:
        for name, body in action.items():
            by_name.setdefault(name, []).append(body)
    time = time_of(actions)
    added = [add for add in by_name.get("add", ()) if add.get("dataChange", True)]
    removed = [remove for remove in by_name.get("remove", ()) if remove.get("dataChange", True)]
    read: list[tuple[Kind, Mapping[str, Any]]] = [("insert", add) for add in added]
    rewrites = None
    if changes:
        cdc = by_name.get("cdc", ())
        read = [("cdc", file) for file in cdc] if cdc else [("delete", remove) for remove in removed] + read
    elif removed:
        rewrites = f"{'updates or deletes' if added else 'deletes'} rows of {len(removed):,} files"
    files = tuple(data_file(version, i, body, kind=kind, time=time) for i, (kind, body) in enumerate(read))
    problem = next((why for _, body in read if (why := _file_problem(body)) is not None), None)
    return Commit(
        files=() if rewrites else files,
        rewrites=rewrites,
        problem=None if rewrites else problem,
        metadata=by_name["metaData"][-1] if "metaData" in by_name else None,
        protocol=by_name["protocol"][-1] if "protocol" in by_name else None,
    )


def active_files(
    summary: Iterable[Mapping[str, Any]], commits: Iterable[Actions]
) -> tuple[list[Mapping[str, Any]], str | None]:
    """Return the `add` actions in force after commits upon a checkpoint's, by path, and why one cannot be read.

    Args:
        summary: The `add` actions of the checkpoint, none where there is no checkpoint.
        commits: The entries of all versions since, in order.
    """
    active = {_key(add): add for add in summary}
    for actions in commits:
        for action in actions:
            if "remove" in action:
                active.pop(_key(action["remove"]), None)
        for action in actions:
            if "add" in action:
                active[_key(action["add"])] = action["add"]
    files = sorted(active.values(), key=lambda add: str(add["path"]))
    return files, next((why for add in files if (why := _file_problem(add)) is not None), None)


def data_file(
    version: int, index: int, body: Mapping[str, Any], *, kind: Kind = "insert", time: int | None = None
) -> DataFile:
    """Return a file by the action that names it."""
    return DataFile(
        version=version,
        index=index,
        path=unquote(str(body["path"])),
        size=int(body.get("size") or 0),
        rows=_rows_of(body.get("stats")),
        values=dict(body.get("partitionValues") or {}),
        kind=kind,
        time=time,
    )


def time_of(actions: Actions) -> int | None:
    """Return when a commit was made by its own words, milliseconds since 1970."""
    for action in actions:
        if "commitInfo" in action:
            info = action["commitInfo"]
            time = info.get("inCommitTimestamp", info.get("timestamp"))
            return None if time is None else int(time)
    return None


def unreadable_part(table: Table) -> str | None:
    """Return what a table asks of readers that the source does not do, in words; None for nothing."""
    version = int(table.protocol.get("minReaderVersion", 1))
    unknown = sorted(set(table.protocol.get("readerFeatures") or ()) - _READ)
    if unknown:
        return f"the table has the feature {unknown[0]!r}"
    if version > _NEWEST_READER:
        return f"the table is of reader version {version}"
    mapping = _settings(table.metadata).get(_MAPPING, "none")
    return None if mapping == "none" else f"the table maps its columns by {mapping} ({_MAPPING})"


def _settings(metadata: Mapping[str, Any]) -> dict[str, str]:
    return dict(metadata.get("configuration") or {})


def _file_problem(body: Mapping[str, Any]) -> str | None:
    if body.get("deletionVector"):
        return f"rows of {body['path']} are deleted by a deletion vector"
    path = str(body["path"])
    return f"{path} is outside the table" if path.startswith("/") or ":/" in path else None


def _key(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return what tells a file from others: two with other deletion vectors are two."""
    vector = body.get("deletionVector") or {}
    return str(body["path"]), f"{vector.get('storageType', '')}{vector.get('pathOrInlineDv', '')}{vector.get('offset')}"


def _rows_of(stats: Any) -> int | None:
    try:
        return int(json.loads(stats)["numRecords"])
    except (KeyError, TypeError, ValueError):
        return None
