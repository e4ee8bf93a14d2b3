"""Read the log of a Delta table, on local disk and HDFS: its commits, and the checkpoints that stand for old ones.

The names and formats are those of the Delta protocol ("Delta Log Entries", "Checkpoints").
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import FileVanished, SourceGap, SourceNotFound, TableUnreadable
from penstock.sources.delta.actions import (
    Actions,
    DataFile,
    Table,
    active_files,
    data_file,
    time_of,
    unreadable_part,
)
from penstock.sources.file.positions import Entry
from penstock.sources.file.systems import FileSystem

__all__ = ["DeltaLog", "Versions"]

_LOG = "_delta_log"
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_TABLE = ("metaData", "protocol")
_ADD = ("path", "partitionValues", "size", "stats", "deletionVector")


@dataclass(frozen=True, slots=True)
class Versions:
    """What a log has.

    Attributes:
        entries: The versions whose entries are there, rising.
        checkpoints: By version the names of the files of each checkpoint that is whole.
    """

    entries: tuple[int, ...]
    checkpoints: Mapping[int, tuple[str, ...]]

    @property
    def newest(self) -> int:
        """The newest version, -1 where there is none."""
        return max([-1, *self.entries[-1:], *self.checkpoints])

    def checkpoint_up_to(self, version: int) -> int:
        """Return the newest checkpoint that is no later than a version, -1 where there is none."""
        return max([-1, *(at for at in self.checkpoints if at <= version)])


class DeltaLog:
    """The log of one table. All methods raise SourceUnavailable and FolderUnreadable as its file system does."""

    def __init__(self, files: FileSystem) -> None:
        self.files = files

    @property
    def where(self) -> str:
        """The table, as people are shown it."""
        return self.files.root

    def versions(self) -> Versions:
        """List the log; raises SourceNotFound where there is no table."""
        listed = self.files.listed(_LOG)
        names = [] if listed is None else [entry.path.removeprefix(f"{_LOG}/") for entry in listed.files]
        entries = sorted(int(match[1]) for name in names if (match := _ENTRY.fullmatch(name)))
        parts: dict[tuple[int, int], list[str]] = {}
        for match in filter(None, map(_CHECKPOINT.fullmatch, sorted(names))):
            parts.setdefault((int(match[1]), int(match[3] or 1)), []).append(match[0])
        whole = {version: tuple(found) for (version, count), found in sorted(parts.items()) if len(found) == count}
        if not entries and not whole:
            raise SourceNotFound("there is no Delta table", where=self.where)
        return Versions(tuple(entries), whole)

    def changed(self) -> int:
        """Return when a name in the log's folder was last made or removed, nanoseconds since 1970."""
        folder = self.files.folder(_LOG)
        return 0 if folder is None else folder.modified

    def look(self, *versions: int) -> list[Entry | None]:
        """Return the files of the entries of versions as they are now, None for those that are not there."""
        return self.files.look([_name(version) for version in versions])

    def actions(self, version: int) -> Actions | None:
        """Return the entry of a version, None where there is none (yet, or any more); raises TableUnreadable."""
        name = _name(version)
        if self.files.look([name])[0] is None:
            return None
        try:
            with self.files.open(name) as file:
                actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
        except FileVanished:
            return None
        except ValueError as why:
            raise TableUnreadable(f"version {version} has an entry that is no JSON", where=self.where) from why
        # Each commit does something: an entry without an action is what a power cut left of one, with all its rows.
        if not actions or not all(isinstance(action, dict) and _has_bodies(action) for action in actions):
            raise TableUnreadable(f"version {version} has an entry that is damaged", where=self.where)
        return actions

    def table_after(self, version: int, known: int, table: Table) -> Table | None:
        """Return the same as `table` does, by the entries after a known version; None where one of them is gone."""
        found = {"metaData": table.metadata, "protocol": table.protocol}
        for at in range(known + 1, version + 1):
            actions = self.actions(at)
            if actions is None:
                return None
            for action in actions:
                found |= {name: action[name] for name in _TABLE if name in action}
        return Table(found["metaData"], found["protocol"])

    def table(self, version: int) -> Table | None:
        """Return metadata and protocol as of a version, None where the log does not reach back so far."""
        known: dict[str, Any] = {}
        versions = self.versions()
        base = versions.checkpoint_up_to(version)
        for at in range(version, base, -1):
            actions = self.actions(at)
            if actions is None:
                return None
            for action in actions:
                known = {**{n: action[n] for n in _TABLE if n in action}, **known}
            if len(known) == len(_TABLE):
                return Table(known["metaData"], known["protocol"])
        if base < 0:
            return None
        for name in versions.checkpoints[base]:
            for member in _TABLE:
                rows = self._summary(name, member, None)
                known = {**({member: rows[-1]} if rows else {}), **known}
        return Table(known["metaData"], known["protocol"]) if len(known) == len(_TABLE) else None

    def snapshot(self, version: int) -> list[DataFile]:
        """Return the files of the table as of a version, by path.

        Raises SourceGap where the log has no such version any more, and TableUnreadable.
        """
        versions = self.versions()
        base = versions.checkpoint_up_to(version)
        commits: list[Actions] = []
        for at in range(base + 1, version + 1):
            actions = self.actions(at)
            if actions is None:
                raise SourceGap(
                    f"the table as of version {version} is wanted, and its log does not reach back so far any more",
                    where=self.where,
                )
            commits.append(actions)
        summary = [add for name in versions.checkpoints.get(base, ()) for add in self._summary(name, "add", _ADD)]
        files, problem = active_files(summary, commits)
        if problem is not None:
            raise TableUnreadable(problem, where=self.where)
        time = time_of(commits[-1] if commits else self.actions(version) or ())
        return [data_file(version, i, add, time=time) for i, add in enumerate(files)]

    def refuse_unreadable(self, table: Table, *, changes: bool) -> None:
        """Raise TableUnreadable where rows of a table cannot be read as they are, or not as the job wants."""
        problem = unreadable_part(table)
        if problem is None and changes and not table.has_change_feed:
            problem = "changes=True needs a change data feed, and the table has none (delta.enableChangeDataFeed)"
        if problem is not None:
            raise TableUnreadable(problem, where=self.where)

    def _summary(self, name: str, member: str, fields: tuple[str, ...] | None) -> list[dict[str, Any]]:
        """Return the actions of a kind that a file of a checkpoint has."""
        try:
            with self.files.open(f"{_LOG}/{name}") as file:
                source = pq.ParquetFile(pa.PythonFile(file, mode="r"))
                there = source.schema_arrow
                if member not in there.names:
                    return []
                inner = [field.name for field in there.field(member).type if fields is None or field.name in fields]
                table = source.read(columns=[f"{member}.{field}" for field in inner])
        except (pa.ArrowException, FileVanished) as why:
            raise TableUnreadable(f"the checkpoint {name} cannot be read", where=self.where) from why
        column = table.column(member).combine_chunks()
        rows = column.filter(pc.is_valid(column)).to_pylist()
        return [{key: _plain(value) for key, value in row.items() if value is not None} for row in rows]


def _name(version: int) -> str:
    return f"{_LOG}/{version:020}.json"


def _has_bodies(action: dict[str, Any]) -> bool:
    return all(isinstance(body, dict) for body in action.values())


def _plain(value: Any) -> Any:
    """Return a map, which Arrow has as pairs, as a dict."""
    is_map = isinstance(value, list) and all(isinstance(pair, tuple) for pair in value)
    return dict(value) if is_map and value else value
