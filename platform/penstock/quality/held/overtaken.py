"""Note which held rows a later batch replaces, so that a release leaves them out (decision 190).

A sink with keys has one row of each, that of the newest batch. A batch that was held is older than those published
since. So before a batch is published, the driver notes which rows of older held batches have one of its keys::

    staged/<sink>/<held batch>-overtaken-<batch>-<random>       the numbers of these rows, in order of arrival

The note lies beside the held files, and is swept with them. It counts for as long as its batch is in the line of the
job: a restore may undo the batch, and a person may have the sink skip it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from penstock.checkpoint.log.entries import Commit, StagedFile
from penstock.checkpoint.log.listener import Listener
from penstock.checkpoint.log.recovery import Recovered
from penstock.checkpoint.storage import format as fileformat
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.locate import root_of
from penstock.errors import CheckpointCorrupt
from penstock.graph.graph import JobGraph
from penstock.quality.held.decision_records import HeldRecords
from penstock.sinks.delta.merge import KeySet, last_of_keys
from penstock.sinks.staged_files import read_staged, stage_table, verify_staged

__all__ = ["HeldKeys", "InForce", "left_over", "newest_rows", "note_overtaken"]

events = structlog.get_logger()

_KIND = "overtaken"
_NAME = re.compile(rf"(\d+)-{_KIND}-(\d+)-[0-9a-f]+")
_AT_ONCE = 1_000_000
"""Rows of one note: a file of the checkpoint has a bound in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """Tell which published batches count: those that the newest Commit follows from, and that no sink has skipped."""

    newest: Commit | None
    skipped: Mapping[str, Collection[int]]

    @classmethod
    def of(cls, recovered: Recovered) -> InForce:
        """Return what the log says."""
        return cls(newest=recovered.commit, skipped=recovered.skipped)

    def __call__(self, sink: str, batch: int) -> bool:
        """Return whether a batch counts for a sink."""
        if self.newest is None or batch > self.newest.batch or batch in self.skipped.get(sink, ()):
            return False
        return not any(first <= batch < end for first, end in self.newest.superseded)


class HeldKeys(Listener):
    """Note what each batch replaces of held ones, before it is published; listens to a driver.

    `staged` is the job's folder of staged files. The keys of held rows that nothing has replaced stay in memory.
    """

    def __init__(self, graph: JobGraph, staged: CheckpointFolder, records: HeldRecords) -> None:
        self._sinks = {node.name: node.sink for node in graph.sinks if getattr(node.sink, "keys", ())}
        self._staged = staged
        self._records = records
        self._in_force = InForce(newest=None, skipped={})
        self._held: dict[int, Mapping[str, Sequence[StagedFile]]] = {}
        self._left: dict[tuple[str, int], pa.Table] = {}

    def on_takeover(self, recovered: Recovered) -> None:
        """Begin with the held batches of the log, and delete notes of batches that a sink has skipped."""
        self._held, self._left, self._in_force = {}, {}, InForce.of(recovered)
        for batch in sorted(recovered.held) if self._sinks else ():
            try:
                self._held[batch] = recovered.held[batch].held
            except CheckpointCorrupt:  # `fsck` reports it, and nobody can release it
                continue
        for sink, skipped in recovered.skipped.items():  # the log forgets below its floor what was skipped
            if any(sink in files for files in self._held.values()):
                for _, batch, note in _notes(self._staged / sink):
                    if batch in skipped:
                        note.remove()

    def on_publishing(self, commit: Commit, sinks: Sequence[str]) -> None:
        """Note which rows of undecided batches have a key of those that some sinks get next."""
        for sink in self._sinks.keys() & sinks:
            files = commit.staged.get(sink)
            older = [b for b, held in self._held.items() if b < commit.batch and held.get(sink)]
            if not files or not older:
                continue
            keys, folder = self._sinks[sink].keys, self._staged / sink
            rows = read_staged(root_of(self._sinks[sink].staging(folder)), files)
            for batch in older:
                left = self._left_of(sink, batch)
                self._left[sink, batch] = _note(folder, keys, batch, left, commit.batch, rows)

    def on_batch_completed(self, commit: Commit) -> None:
        """Add a batch that was held; ask of one other whether a decision on it was carried out, and forget it then."""
        if self._held:
            asked = [*self._held][commit.batch % len(self._held)]  # of one, so that no batch asks after them all
            ruling = self._records.ruling(asked)
            if ruling is not None and ruling.done:
                del self._held[asked]
                self._left = {at: keys for at, keys in self._left.items() if at[1] != asked}
        if commit.held and self._sinks:
            self._held[commit.batch] = commit.held

    def _left_of(self, sink: str, batch: int) -> pa.Table:
        """Return the keys and numbers of the rows of a held batch that no batch in force has replaced."""
        if (sink, batch) not in self._left:
            folder, keys, files = self._staged / sink, self._sinks[sink].keys, self._held[batch][sink]
            self._left[sink, batch] = _keyed(folder, keys, batch, files, sink, self._in_force)
        return self._left[sink, batch]


def note_overtaken(
    staged: CheckpointFolder,
    sinks: Mapping[str, Any],
    older: Mapping[int, Mapping[str, Sequence[StagedFile]]],
    batch: int,
    files: Mapping[str, Sequence[StagedFile]],
    in_force: InForce,
) -> None:
    """Note which rows of older held batches a held batch replaces, before that is released.

    Args:
        staged: The job's folder of staged files.
        sinks: The sinks of the job by name.
        older: The files of undecided batches, by batch and sink.
        batch: The batch that is released.
        files: Its files by sink.
        in_force: Which earlier notes count.
    """
    for sink, released in files.items():
        keys, folder = getattr(sinks[sink], "keys", ()), staged / sink
        for held, of in older.items():
            if keys and held < batch and of.get(sink):
                left = _keyed(folder, keys, held, of[sink], sink, in_force)
                _note(folder, keys, held, left, batch, read_staged(folder, released))


def left_over(
    folder: CheckpointFolder, sink: str, batch: int, files: Sequence[StagedFile], in_force: InForce
) -> Sequence[StagedFile]:
    """Return the files to publish of a held batch: its own, or one without the rows that others have replaced.

    That is none where nothing is left. The file is written beside them, in order of arrival.
    """
    overtaken = _overtaken(folder, sink, batch, in_force)
    if not overtaken:
        return files
    rows = read_staged(folder, files)
    left = rows.filter(pc.invert(_are_among(pa.array(np.arange(rows.num_rows)), overtaken)))
    events.info("held.overtaken", sink=sink, batch=batch, rows=rows.num_rows, left_out=rows.num_rows - left.num_rows)
    if not left.num_rows:
        return []
    facts = stage_table(left, folder, f"{batch:012d}-released-{secrets.token_hex(8)}.parquet")
    return [StagedFile(**facts, stats={})]


def newest_rows(folder: CheckpointFolder, files: Sequence[StagedFile], keys: Sequence[str]) -> int:
    """Return how many rows of some files a sink with keys takes: the newest of each key."""
    return last_of_keys(read_staged(folder, files), keys).num_rows if files else 0


def _keyed(
    folder: CheckpointFolder,
    keys: Sequence[str],
    batch: int,
    files: Sequence[StagedFile],
    sink: str,
    in_force: InForce,
) -> pa.Table:
    """Return the keys and numbers of the rows of a held batch that nothing in force has replaced; none if damaged."""
    try:
        verify_staged(folder, files)
    except CheckpointCorrupt as why:  # a release of the batch is refused, and nothing else needs it
        events.warning("held.not_read", sink=sink, batch=batch, reason=why.what, where=why.where)
        return pa.table({_number_of(keys): pa.array([], pa.int64())})
    rows = read_staged(folder, files)
    numbers = pa.array(np.arange(rows.num_rows))
    table = pa.table({**{key: rows[key] for key in keys}, _number_of(keys): numbers})
    return table.filter(pc.invert(_are_among(numbers, _overtaken(folder, sink, batch, in_force))))


def _note(
    folder: CheckpointFolder, keys: Sequence[str], held: int, left: pa.Table, batch: int, rows: pa.Table
) -> pa.Table:
    """Write which of the rows that are left have a key of `rows`, and return the others."""
    if not left.num_rows:
        return left
    replaced = KeySet(last_of_keys(rows, keys), keys).among(left)
    numbers = left[_number_of(keys)].filter(replaced)
    for begin in range(0, len(numbers), _AT_ONCE):
        body = {"rows": numbers.slice(begin, _AT_ONCE).to_pylist()}
        name = f"{held:012d}-{_KIND}-{batch:012d}-{secrets.token_hex(8)}"
        (folder / name).create(fileformat.encode(_KIND, body))
    return left.filter(pc.invert(replaced))


def _number_of(keys: Sequence[str]) -> str:
    """Return a name for the numbers of rows that no key has."""
    return "row" + "_" * max(map(len, keys))


def _overtaken(folder: CheckpointFolder, sink: str, batch: int, in_force: InForce) -> set[int]:
    """Return the numbers of the rows of a held batch that batches in force have replaced."""
    notes = [note for held, by, note in _notes(folder) if held == batch and in_force(sink, by)]
    bodies = (fileformat.decode(note.read(), kind=_KIND, path=str(note))[1] for note in notes)
    return {number for body in bodies for number in body["rows"]}


def _notes(folder: CheckpointFolder) -> Iterator[tuple[int, int, CheckpointFolder]]:
    """Yield the notes of a sink, each with the held batch and the one that replaces its rows."""
    for path in folder.files():
        if (named := _NAME.fullmatch(path.name)) is not None:
            yield int(named[1]), int(named[2]), path


def _are_among(numbers: pa.Array, some: Collection[int]) -> pa.Array:
    return pc.is_in(numbers, value_set=pa.array(sorted(some), pa.int64()))
