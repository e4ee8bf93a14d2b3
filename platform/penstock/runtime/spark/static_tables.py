"""Choose the version of each joined table that a batch uses, and give it to the tasks as a file.

A version is written once below the checkpoint, as an Arrow file that is named by its content. So a batch that runs
again has the rows that it had, also where the table has lost the version meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import pyarrow as pa

from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.recovery import Recovered
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import (
    AlreadyExists,
    BadExpression,
    PenstockError,
    SegmentExists,
    SourceChanged,
    StateMissing,
    TableRefused,
    TableVersionGone,
)
from penstock.graph.join_static import OnNewVersion, StaticJoinNode
from penstock.operators.columns import arrow_schema
from penstock.operators.static_index import fingerprint, ordered
from penstock.runtime.driver.table_versions import RecordedTables, Version, file_name, looks, tables_of
from penstock.runtime.plan.branch_frame import at_site
from penstock.sources.delta.versions import DeltaVersions

__all__ = ["StaticTables"]

_MOST_BYTES = 256 << 20
"""What a table may have, as Arrow counts. Workers of a machine share the rows, and each has an index of the keys."""


class _Rows(Protocol):
    """The rows of a table."""

    def schema(self, version: int | None) -> pa.Schema:
        """Return the columns of a version; raises SourceChanged where it is gone."""

    def newest(self) -> tuple[str, int | None]:
        """Return what tells the table from others, and its newest version, None where it has none."""

    def read(self, version: int | None) -> pa.Table:
        """Return the rows of a version; raises SourceChanged where it is gone."""


class _DeltaRows:
    def __init__(self, path: str) -> None:
        self._versions = DeltaVersions(path)

    def schema(self, version: int | None) -> pa.Schema:
        assert version is not None
        return self._versions.schema(version)

    def newest(self) -> tuple[str, int | None]:
        version = self._versions.newest()
        return self._versions.id_of(version), version

    def read(self, version: int | None) -> pa.Table:
        assert version is not None
        return self._versions.rows(version)


class _FrameRows:
    def __init__(self, node: StaticJoinNode) -> None:
        self._node = node

    def schema(self, version: int | None) -> pa.Schema:
        return arrow_schema(self._frame().schema)

    def newest(self) -> tuple[str, int | None]:
        return "", None

    def read(self, version: int | None) -> pa.Table:
        frame = self._frame()
        return frame.toArrow().cast(arrow_schema(frame.schema))

    def _frame(self) -> Any:
        from pyspark.sql import DataFrame

        assert callable(self._node.table)
        frame = self._node.table()
        if not isinstance(frame, DataFrame):
            raise BadExpression(
                f"the table of join_static {self._node.name!r} is a {type(frame).__name__}, no DataFrame"
            )
        return frame


class StaticTables:
    """The tables that a job joins; `folder` is below its checkpoint, and has their files.

    `recorded` has the versions that the batch to run next continues with. A batch that runs again has the columns that
    it had. While a step keeps the version of the last Commit it has the columns of that. Columns that the table got
    since are null, or left out if it keeps the version for ever. Every other step has those of the newest version.
    """

    def __init__(self, nodes: Sequence[StaticJoinNode], folder: CheckpointFolder, recorded: RecordedTables) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._folder = folder
        self._rows: dict[str, _Rows] = {}
        self.schemas: dict[str, pa.Schema] = {}
        self._there: set[str] = set()
        self._made: dict[str, CheckpointFolder] = {}
        self._looked: set[str] = set()
        self._seen: dict[str, Version] = {}
        for name, node in self._nodes.items():
            with at_site(node.site):
                rows = _DeltaRows(node.table) if isinstance(node.table, str) else _FrameRows(node)
                self._rows[name] = rows
                self.schemas[name] = self._schema(node, recorded)

    @property
    def columns(self) -> dict[str, str]:
        """Return in words the columns of each step's table."""
        words = {name: [f"{field.name} {field.type}" for field in schema] for name, schema in self.schemas.items()}
        return {name: ", ".join(texts) for name, texts in words.items()}

    def versions(self, commit: Commit | None, batch: int) -> dict[str, Version]:
        """Return the version of each table that a batch uses, whose file is durable then.

        `commit` is the one before it.
        Raises TableRefused for a new version that does not fit, and what reading it raises.
        """
        known = {} if commit is None else commit.tables
        versions = {name: self._version(node, known.get(name), batch) for name, node in self._nodes.items()}
        return {name: {**version, "columns": self.schemas[name].names} for name, version in versions.items()}

    def files(self, versions: Mapping[str, Version]) -> dict[str, str]:
        """Return where tasks find the rows of versions, by the names of the steps.

        A step that is not among them has joined the job since the batch was fixed, and has its newest version.
        Raises TableVersionGone where a file is gone and the table has not the version any more.
        """
        files = {}
        for name, node in self._nodes.items():
            version = versions.get(name) or self._newest(node, 0)
            file = self._file(name, version)
            if str(file) not in self._there and not self._is_whole(file, version):
                self._restore(node, version, file)
            self._there.add(str(file))
            self._made[str(file)] = file
            files[name] = file.address
        return files

    def sweep(self, recovered: Recovered) -> None:
        """Remove the files that neither the newest Commit nor a fixed batch uses."""
        used = [] if recovered.commit is None else [recovered.commit.tables]
        used += [] if recovered.pending is None else [tables_of(recovered.pending)]
        kept = {self._file(name, version) for tables in used for name, version in tables.items()}
        self._folder.remove_files([file for file in self._folder.files() if file not in kept])

    def forget(self, used: Mapping[str, Version]) -> None:
        """Remove the files that this process has made or used, but for those of these versions."""
        kept = {str(self._file(name, version)): self._file(name, version) for name, version in used.items()}
        gone = [file for name, file in self._made.items() if name not in kept]
        if gone:
            self._folder.remove_files(gone)
            self._there -= {str(file) for file in gone}
        self._made = dict(kept)

    def _schema(self, node: StaticJoinNode, recorded: RecordedTables) -> pa.Schema:
        """Return the columns of a step."""
        rows = self._rows[node.name]
        own, number = rows.newest()
        fixed = recorded.fixed.get(node.name)
        kept = recorded.kept(node.name, node.refresh) if fixed is None else fixed
        if kept is None or (fixed is None and kept["id"] != own):
            return rows.schema(number)
        stays = self._schema_of(node, kept, own)
        if stays is None:
            return rows.schema(number)
        if fixed is not None:
            names = fixed.get("columns", stays.names)
            # A column that the batch had and its version has not is one that the table got later.
            later = rows.schema(number) if set(names) - set(stays.names) else stays
            found = {field.name: field for field in (*later, *stays)}
            return pa.schema([found[name] for name in names if name in found])
        if node.refresh is None:
            return stays
        newest = rows.schema(number)
        types = dict(zip(newest.names, newest.types, strict=True))
        return newest if all(types.get(field.name) == field.type for field in stays) else stays

    def _schema_of(self, node: StaticJoinNode, version: Version, own: str) -> pa.Schema | None:
        """Return the columns of a version; `own` tells the table that the step names from others."""
        try:
            with pa.memory_map(str(self._file(node.name, version).fetch())) as opened:
                return pa.ipc.open_file(opened).schema
        except (StateMissing, FileNotFoundError, pa.ArrowException):
            if version["id"] == own:
                with suppress(SourceChanged):  # which the batch reports, once it needs the rows
                    return self._rows[node.name].schema(version["version"])
        return None

    def _version(self, node: StaticJoinNode, known: Version | None, batch: int) -> Version:
        if known is None or self._is_another(node, known):
            return self._newest(node, batch)
        if not looks(node.refresh, known, batch):
            return known
        newest = self._newest(node, batch, known)
        same = all(newest[name] == known[name] for name in ("id", "version", "fingerprint"))
        return known if same and node.refresh == OnNewVersion() else newest

    def _is_another(self, node: StaticJoinNode, known: Version) -> bool:
        """Return whether the step names another table than it did; the table is asked once in a process."""
        if node.name in self._looked:
            return False
        self._looked.add(node.name)
        with suppress(PenstockError):  # of a table that is gone the file is still there
            return bool(self._rows[node.name].newest()[0] != known["id"])
        return False

    def _newest(self, node: StaticJoinNode, batch: int, known: Version | None = None) -> Version:
        """Return the newest version, whose file is durable then; rows of `known` and of the last one are not read."""
        with at_site(node.site):
            own, number = self._rows[node.name].newest()
            for seen in (known, self._seen.get(node.name)) if number is not None else ():
                if seen is not None and (own, number) == (seen["id"], seen["version"]):
                    return {**seen, "taken": batch}
            rows = self._checked(node, self._rows[node.name].read(number))
        version = {"id": own, "version": number, "fingerprint": fingerprint(rows), "taken": batch}
        self._write(rows, self._file(node.name, version))
        self._seen[node.name] = version
        return version

    def _checked(self, node: StaticJoinNode, rows: pa.Table) -> pa.Table:
        """Return the rows of a new version in their order; raises TableRefused."""
        what = f"the newest version of table {node.table_words}"
        if rows.nbytes > _MOST_BYTES:
            raise TableRefused(f"{what} has {rows.nbytes:,} bytes, and a joined table may have {_MOST_BYTES:,}")
        for field in self.schemas[node.name]:
            if field.name not in rows.column_names:
                raise TableRefused(f"{what} has no column {field.name!r}, which the version before it has")
            if (now := rows.schema.field(field.name).type) != field.type:
                raise TableRefused(
                    f"column {field.name!r} of {what} is {now}, and {field.type} in the version before it"
                )
        return ordered(rows)

    def _restore(self, node: StaticJoinNode, version: Version, file: CheckpointFolder) -> None:
        """Write a file again from the table."""
        what = f"the rows of table {node.table_words} that join_static {node.name!r} used in batch {version['taken']}"
        named = "" if version["version"] is None else f", of version {version['version']},"
        with at_site(node.site):
            try:
                rows = ordered(self._rows[node.name].read(version["version"]))
            except SourceChanged as why:
                raise TableVersionGone(f"{what}{named} are gone: {why.what}") from why
            if fingerprint(rows) != version["fingerprint"]:
                raise TableVersionGone(f"{what}{named} are gone: the table has other rows now")
        file.remove()
        self._write(rows, file)

    def _write(self, rows: pa.Table, file: CheckpointFolder) -> None:
        if str(file) in self._there:
            return
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_file(buffer, rows.schema) as writer:
            writer.write_table(rows)
        self._folder.make()
        with suppress(SegmentExists, AlreadyExists):  # of the same content, by its name
            file.create(buffer.getvalue().to_pybytes())

    def _is_whole(self, file: CheckpointFolder, version: Version) -> bool:
        try:
            with pa.memory_map(str(file.fetch())) as opened:
                return bool(fingerprint(pa.ipc.open_file(opened).read_all()) == version["fingerprint"])
        except (StateMissing, FileNotFoundError, pa.ArrowException):
            return False

    def _file(self, name: str, version: Version) -> CheckpointFolder:
        return self._folder / file_name(name, version)
