"""Take in, between the batches of a driver, requests to send quarantined rows through again (decision 134)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from penstock.checkpoint.log.entries import Commit, Requeued
from penstock.checkpoint.log.listener import Listener
from penstock.checkpoint.log.recovery import Recovered
from penstock.checkpoint.requeue_requests import Requeue, RequeueAnswer, RequeueRequests
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import PenstockError, RequeueRefused
from penstock.graph.graph import JobGraph
from penstock.graph.nodes import SinkNode, SourceNode
from penstock.graph.specs.deduplicate import Deduplicate
from penstock.runtime.driver.next_batch import REQUEUES, requeues_of
from penstock.runtime.driver.superseded import are_superseded, superseded_before
from penstock.runtime.tasks.requeued import COLUMNS, encoded, parsed_reason
from penstock.runtime.tasks.routing import REASONS
from penstock.runtime.tasks.specs import AHEAD
from penstock.sinks.base import ReadableSink
from penstock.sources.base import SourceReader, SplitReader
from penstock.time.clock import Clock

__all__ = ["RequeueService", "quarantine_sink", "refuse_duplicates"]

log = structlog.get_logger()

_LOOK_EVERY = 1.0
"""Seconds between two looks at what is asked, for a driver that waits for a batch; each batch has one of its own."""
_MOST = 100_000
"""Rows that one batch takes, unless one batch of the quarantine has more."""
_OF_COLUMNS = frozenset({REASONS[-2], AHEAD})
"""The reasons of rows that the source could decode: their text is JSON of their columns."""


@dataclass
class RequeueService(Listener):
    """Plan requeues, answer them when their batches are committed, and remove their files.

    `readers` are those of the job's sources, and `folder` is the job's.
    """

    requests: RequeueRequests
    graph: JobGraph
    folder: CheckpointFolder
    clock: Clock
    readers: Mapping[str, SourceReader]
    most: int = _MOST
    _planned: tuple[int, dict[str, dict[str, Any]]] | None = None
    _holds: int | None = None
    """The newest batch with a file here, of this driver or fixed by another; None once it is committed."""
    _looked: tuple[int, float] | None = None
    _answered: set[str] = field(default_factory=set)
    _named: set[str] = field(default_factory=set)
    """The requests that cannot be read, of which this driver has said so."""

    def plan(self, commit: Commit | None, batch: int) -> Mapping[str, Mapping[str, Any]]:
        """Return what batch `batch` sends again of each source, as its Offsets have it; nothing for most batches.

        Calls for one batch return one answer, so a file is written once. Storage or a table that does not answer is
        logged, and asked again.
        """
        if commit is None or (self._planned is not None and self._planned[0] == batch):
            return {} if self._planned is None or commit is None else self._planned[1]
        now = self.clock.monotonic()
        if self._looked is not None and self._looked[0] == batch and now - self._looked[1] < _LOOK_EVERY:
            return {}
        self._looked = (batch, now)
        try:
            self._name_unreadable()
            planned = {
                source.name: taken
                for source in self.graph.sources
                if (taken := self._of_source(source, commit, batch)) is not None
            }
        except (PenstockError, OSError) as why:
            log.warning("requeue.not_planned", reason=str(why))
            return {}
        if planned:
            self._planned, self._holds = (batch, planned), batch
        return planned

    def on_takeover(self, recovered: Recovered) -> None:
        """Answer what the driver before had committed, and remove the files of its batches."""
        fixed = {} if recovered.pending is None else requeues_of(recovered.pending)
        self._planned = None
        self._holds = recovered.pending.batch if fixed and recovered.pending is not None else None
        if recovered.commit is not None:
            self._answer(recovered.commit)
            self._remove(recovered.commit.batch)

    def on_batch_completed(self, commit: Commit) -> None:
        """Answer the requests that the batch has ended."""
        self._answer(commit)
        if self._holds is None or self._holds > commit.batch:
            return
        self._holds = None
        self._remove(commit.batch)

    def _of_source(self, source: SourceNode, commit: Commit, batch: int) -> dict[str, Any] | None:
        progress = commit.sources.get(source.name)
        mark = progress.requeued if progress is not None else None
        if mark is not None and mark.next < mark.until:
            return self._taken(source, mark, commit, batch)
        for request in self.requests.open():
            if request.source not in {known.name for known in self.graph.sources}:
                self._refuse(request, f"the job has no source {request.source!r}")
            elif request.source != source.name:
                continue
            elif mark is not None and request.id == mark.command:  # carried out, and not answered yet
                self.requests.reply(request.id, RequeueAnswer(rows=mark.rows, batch=commit.batch))
            elif request.doubt is not None:
                self._refuse(request, request.doubt)
            else:
                return self._begun(source, request, commit, batch)
        return None

    def _begun(self, source: SourceNode, request: Requeue, commit: Commit, batch: int) -> dict[str, Any] | None:
        progress = commit.sources.get(source.name)
        mark = None if progress is None else progress.requeued
        start = request.from_batch if request.from_batch is not None else 0 if mark is None else mark.next
        # A batch that was undone may have sent rows again, with success: those are sent where somebody says from where.
        undone = request.from_batch is not None
        wanted = Requeued(command=request.id, next=min(start, batch), until=batch, rows=0, undone=undone)
        try:
            refuse_duplicates(self.graph, source.name)
            taken = self._taken(source, wanted, commit, batch)
        except RequeueRefused as why:
            self._refuse(request, why.what)
            return None
        if not taken["count"]:
            self.requests.reply(request.id, RequeueAnswer(rows=0, batch=None))
            return None
        log.info("requeue.taken", source=source.name, rows=taken["count"], request=request.id, batch=batch)
        return taken

    def _taken(self, source: SourceNode, mark: Requeued, commit: Commit, batch: int) -> dict[str, Any]:
        """Read rows of the quarantine, write them to a file, and return what the Offsets say of them."""
        sink = self._sink_of(source)
        progress = commit.sources.get(source.name)
        places = _Places(
            self._name_column(source),
            source.name,
            undone=superseded_before(batch, commit),
            passed_over=progress.passed_over if progress is not None and mark.undone else {},
        )
        # The places alone: a quarantine may have far more rows than memory, of which a batch takes some.
        newest = places.newest(sink.read_batches(range(mark.next, mark.until), places.columns))
        end = mark.until
        if newest.num_rows > self.most:
            batches = np.sort(newest["_batch"].to_numpy())
            cut = max(int(batches[self.most]), int(batches[0]) + 1)
            end = cut if batches[-1] >= cut else mark.until
        rows = newest
        if newest.num_rows:
            rows = places.rows(sink.read_batches(range(mark.next, end)), newest)
        taken = {
            "command": mark.command,
            "next": end,
            "until": mark.until,
            "rows": mark.rows + rows.num_rows,
            "undone": mark.undone,
            "count": rows.num_rows,
        }
        if not rows.num_rows:
            return taken
        data, checksum = encoded(self._as_sent(rows, self._name_column(source)))
        # A name is used once: executors keep copies, also of one whose driver died before its Offsets named it.
        name = f"{batch:012d}-{source.name}-{secrets.token_hex(4)}.arrow"
        folder = self.folder / REQUEUES
        folder.make()
        (folder / name).create(data)
        return {**taken, "file": name, "checksum": checksum}

    def _sink_of(self, source: SourceNode) -> ReadableSink:
        """Return what `quarantine_sink` finds; raises RequeueRefused, also where no task could decode the rows."""
        if not isinstance(self.readers[source.name], SplitReader):
            raise RequeueRefused(f"source {source.name!r} is read by Spark, and not by tasks that could decode a text")
        return quarantine_sink(self.graph, source.name)

    def _name_column(self, source: SourceNode) -> str | None:
        """Return the column of a quarantine that names partitions, None where their numbers do."""
        names = self.readers[source.name].partition_names
        return None if names is None else names.column

    def _as_sent(self, rows: pa.Table, name: str | None) -> pa.Table:
        known = zip(rows["_reason"].to_pylist(), rows["_batch"].to_pylist(), strict=True)
        parsed = [parsed_reason(reason, batch) for reason, batch in known]
        columns = {
            "_raw": rows["_raw"],
            "_columns": [reason in _OF_COLUMNS for reason, _, _ in parsed],
            "_reason": [reason for reason, _, _ in parsed],
            "_partition": rows["_partition"],
            "_position": rows["_position"],
            "_name": pa.nulls(rows.num_rows, pa.string()) if name is None else rows[name],
            "_first": [first for _, _, first in parsed],
            "_times": [times + 1 for _, times, _ in parsed],
        }
        typed = [
            pa.chunked_array([pa.array(c, f.type)]) if isinstance(c, list) else c.cast(f.type)
            for c, f in zip(columns.values(), COLUMNS, strict=True)
        ]
        return pa.table(typed, schema=COLUMNS)

    def _answer(self, commit: Commit) -> None:
        for progress in commit.sources.values():
            mark = progress.requeued
            if mark is None or mark.next < mark.until or mark.command in self._answered:
                continue
            try:
                self.requests.reply(mark.command, RequeueAnswer(rows=mark.rows, batch=commit.batch))
            except (PenstockError, OSError) as why:
                log.warning("requeue.not_answered", reason=str(why))
            else:
                self._answered.add(mark.command)

    def _name_unreadable(self) -> None:
        for place in self.requests.unreadable():
            if place not in self._named:
                self._named.add(place)
                log.warning("requeue.unreadable", path=place, do="ask again by penstock requeue JOB --source NAME")

    def _refuse(self, request: Requeue, why: str) -> None:
        log.warning("requeue.refused", source=request.source, reason=why)
        self.requests.reply(request.id, RequeueRefused(why))

    def _remove(self, committed: int) -> None:
        """Remove the files of batches up to one that is committed: no later one, which may be of the next driver."""
        try:
            for file in (self.folder / REQUEUES).files():
                batch = file.name.partition("-")[0]
                if batch.isdecimal() and int(batch) <= committed:
                    file.remove()
        except (PenstockError, OSError) as why:
            log.warning("requeue.not_swept", reason=str(why))


def refuse_duplicates(graph: JobGraph, name: str) -> None:
    """Raise RequeueRefused for a job that tells rows apart only by columns that rows sent again do not have."""
    for step in graph.steps:
        for source in graph.sources_of(step) if isinstance(step.spec, Deduplicate) else ():
            if source.name == name and {*step.keys[0]} <= {*getattr(source.source, "with_columns", ())}:
                raise RequeueRefused(
                    f"deduplicate {step.name!r} is by {', '.join(step.keys[0])}, which rows sent again do not have: "
                    "all of them but one would be dropped",
                    where=str(step.site),
                )


def quarantine_sink(graph: JobGraph, source: str) -> ReadableSink:
    """Return the sink that has the quarantine of a source as it is; raises RequeueRefused where there is none."""
    stream = graph.quarantine_stream(source)
    sinks = [] if stream is None else [n for n in graph.children(stream) if isinstance(n, SinkNode)]
    sink = next((node.sink for node in sinks if isinstance(node.sink, ReadableSink)), None)
    if sink is None:
        raise RequeueRefused(f"no sink that can be read has the quarantine of source {source!r} as it is")
    return sink


@dataclass(frozen=True, slots=True)
class _Places:
    """The places of a source's rows in quarantine: partition and position, of which the newest batch counts.

    `name` is the column that names partitions, None where their numbers do. `undone` are ranges of batches that a
    restore has undone. Their rows count for nothing, because the source brings their records again: all but those in
    the ranges of positions that are `passed_over`, by partition.
    """

    name: str | None
    source: str
    undone: Sequence[Sequence[int]]
    passed_over: Mapping[str, Sequence[Sequence[int]]]

    @property
    def columns(self) -> list[str]:
        """The columns that tell places."""
        return ["_source", *self._keys, "_batch"]

    @property
    def _keys(self) -> list[str]:
        return [self.name or "_partition", "_position"]

    def newest(self, rows: pa.Table) -> pa.Table:
        """Return each place once, with the newest `_batch` that has it."""
        own = self._own(rows)
        if not own.num_rows:
            return own
        return own.group_by(self._keys).aggregate([("_batch", "max")]).rename_columns([*self._keys, "_batch"])

    def rows(self, rows: pa.Table, newest: pa.Table) -> pa.Table:
        """Return the rows of places in their newest batch, by batch, partition and position, one of each place."""
        own = self._own(rows)
        own = own.sort_by([("_batch", "ascending"), ("_partition", "ascending"), ("_position", "ascending")])
        keys = [*self._keys, "_batch"]
        numbered = own.select(keys).append_column("_row", pa.array(np.arange(own.num_rows)))
        wanted = numbered.join(newest.select(keys), keys, join_type="left semi")
        last = wanted.group_by(keys).aggregate([("_row", "max")])["_row_max"]
        return own.take(pa.array(np.sort(last.to_numpy())))

    def _own(self, rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return rows
        rows = rows.filter(pc.equal(rows["_source"], self.source))
        brought = are_superseded(rows["_batch"].to_numpy(), self.undone)
        if brought.any() and self.passed_over:
            brought &= ~self._are_passed_over(rows)
        return rows.filter(pa.array(~brought))

    def _are_passed_over(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        positions, found = rows["_position"].to_numpy(), np.zeros(rows.num_rows, np.bool_)
        partitions = rows[self._keys[0]].cast(pa.string())
        for partition, ranges in self.passed_over.items():
            own = pc.fill_null(pc.equal(partitions, partition), fill_value=False).to_numpy()
            for first, end in ranges:
                found |= own & (positions >= first) & (positions < end)
        return found
