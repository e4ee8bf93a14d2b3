"""Preview a restart: which sinks would get which rows a second time, and the command. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.checkpoint.log.batch_report import BatchReport, shown_moment
from penstock.checkpoint.log.recovery import Recovered
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.config.values import parse_size
from penstock.errors import PenstockError
from penstock.quality.held.release import undone_by_restore
from penstock.runtime.inspect.job_status import KeptCheckpoint
from penstock.runtime.restore.target import Superseded, find_superseded
from penstock.supervise.stream import StartOptions, begins_from, start_words
from penstock.ui.model import Trouble

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams

__all__ = ["Plan", "RestartFacts", "Wanted", "plan_of", "starts_of"]

LAST = "last"
_OFFERED = 1_000
"""Batches in the form; an older one is named by the command, or in Airflow's own form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartFacts:
    """The facts of a job for its restart; `recovered` is None without a checkpoint.

    `kept` and `recovered.kept` go together, and `released` are held batches that a person has released. `steps` are
    those with state, `sources` those with a position, `tables` the names in [tables] of the job's configuration.
    """

    job: str
    folder: CheckpointFolder
    recovered: Recovered | None
    kept: Sequence[KeptCheckpoint] = ()
    released: Collection[int] = ()
    steps: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The fields of the form, which are those of the DAG `restart_from_checkpoint`; numbers are still text."""

    start: str = LAST
    truncate: bool = False
    partitions: str = ""
    state: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    rows: str = ""
    bytes: str = ""
    files: str = ""
    note: str = ""

    @classmethod
    def of(cls, query: QueryParams) -> Wanted:
        """Read the fields from the address of the page."""
        return cls(
            start=query.get("start", LAST),
            truncate=query.get("truncate", "") != "",
            partitions=query.get("partitions", "").strip(),
            state=tuple(text for text in query.getlist("state") if text),
            drop=tuple(text for text in query.getlist("drop") if text),
            rows=query.get("rows", "").strip(),
            bytes=query.get("bytes", "").strip(),
            files=query.get("files", "").strip(),
            note=query.get("note", "").strip(),
        )

    def options(self) -> StartOptions | None:
        """Return the options of the start; raises ValueError for what is none."""
        partitions = _count(self.partitions, "partitions")
        return StartOptions.given(partitions=partitions, state=self.state, truncate_sinks=self.truncate, drop=self.drop)

    def words(self) -> str:
        """Return the arguments of `penstock restart` that say the same."""
        arguments = start_words(self.start, self.options())
        limits = {"rows": _count(self.rows, "rows"), "bytes": _size(self.bytes), "files": _count(self.files, "files")}
        for name, limit in limits.items():
            arguments += [] if limit is None else [f"--{name}", str(limit)]
        return shlex.join([*arguments, *([f"--note={self.note}"] if self.note else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The effect of a restart. With `trouble` it would be refused, and the rest says nothing.

    `undone` are the batches that it rewinds past, `read` the rows that they have read. `superseded` is what sinks got
    of them, None where it rewinds past none.
    """

    wanted: Wanted
    back_to: str = ""
    undone: int = 0
    read: int = 0
    superseded: Superseded | None = None
    command: str = ""
    trouble: Trouble | None = None


def starts_of(facts: RestartFacts) -> Iterator[tuple[str, str]]:
    """Yield what a stream can begin from, and how a person reads it; the start without state is not among them."""
    yield LAST, "where it left off"
    for batch in list(reversed(facts.kept))[:_OFFERED]:
        if batch.restorable:
            yield f"batch={batch.report.batch}", f"batch {batch.report.batch}, {shown_moment(batch.report.time)}"
    if facts.recovered is not None:
        for name, commit in facts.recovered.saves.readable().items():
            yield f"saved={name}", f"{name}, saved at batch {commit.batch}"


def plan_of(facts: RestartFacts, wanted: Wanted) -> Plan:
    """Return what a restart would do, as far as the log tells; nothing is asked of anybody."""
    if wanted.truncate and wanted.start == LAST:
        what = "Truncated sinks show again what they showed at a checkpoint, and none is chosen"
        remedy = "Choose a batch or a savepoint to start from, or do not truncate sinks."
        return Plan(wanted=wanted, trouble=Trouble(what=what, remedy=remedy))
    try:
        start = begins_from(wanted.start, wanted.options())
        words = wanted.words()
        recovered = facts.recovered
        superseded = None
        if start.goes_back and recovered is None:
            raise ValueError("there is no checkpoint yet to restore")
        for batch in facts.kept:
            if batch.report.batch == start.batch and batch.trouble is not None:
                raise ValueError(f"batch {start.batch} cannot be restored: {batch.trouble}")
        if start.restore and recovered is not None:
            superseded = find_superseded(start.resolve(recovered, facts.folder), released=facts.released)
    except ValueError as why:
        return Plan(wanted=wanted, trouble=Trouble(what=str(why), remedy="Choose otherwise."))
    except PenstockError as why:
        return Plan(wanted=wanted, trouble=Trouble.of(why))
    undone = [] if superseded is None or recovered is None else _undone(recovered, superseded.batch)
    # One that is not offered, as an old batch or a snapshot, is shown as it is written.
    offered = {"empty": "nothing: everything is read from the start", **dict(starts_of(facts))}
    return Plan(
        wanted=wanted,
        back_to=offered.get(wanted.start, wanted.start),
        undone=len(undone),
        read=sum(report.rows for report in undone),
        superseded=superseded,
        command=f"penstock restart {facts.job} {words}".rstrip(),
    )


def _undone(recovered: Recovered, target: int | None) -> list[BatchReport]:
    """Return the batches in force after the target of the restore."""
    before = undone_by_restore(recovered)
    kept = [kept for kept in recovered.kept if kept.batch not in before]
    return [BatchReport.of(commit) for commit in kept if target is None or commit.batch > target]


def _size(text: str) -> int | None:
    """Read a number of bytes, or a size such as "64 MiB"."""
    if not text or text.isdecimal():
        return _count(text, "bytes")
    try:
        return parse_size(text)
    except ValueError as why:
        raise ValueError(f"{text!r} is not a size: {why}") from why


def _count(text: str, noun: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or not text.isascii() or int(text[:12]) < 1 or len(text) > 12:  # noqa: PLR2004 - the DAG's
        raise ValueError(f"{text!r} is no number of {noun}")
    return int(text)
