"""Say what sinks have published after a batch, before the job goes back to it (SEMANTICS 10.1). Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.recovery import Recovered, find_restorable

__all__ = ["LAST", "StartFrom", "Superseded", "find_superseded", "parse_start"]


@dataclass(frozen=True, slots=True)
class StartFrom:
    """Say where a run starts: at the last commit, at a kept batch, or at nothing (`restore` without a `batch`)."""

    restore: bool = False
    batch: int | None = None


LAST = StartFrom()


def parse_start(text: str) -> StartFrom:
    """Read `last`, `batch=N` or `empty`; raises ValueError with what can be written."""
    if text == "last":
        return LAST
    if text == "empty":
        return StartFrom(restore=True)
    word, _, number = text.partition("=")
    if word != "batch" or not number.isdecimal():
        raise ValueError(f"{text!r} is none of last, batch=N and empty")
    return StartFrom(restore=True, batch=int(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRows:
    """Hold what one sink shows of the batches after the restored one."""

    sink: str
    batches: tuple[int, ...]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """Hold what stays published although the job goes back behind it; `before` is set where older batches are unknown.

    The rows stay in the sinks. Those of the new batches come beside them, under new batch ids.
    """

    batch: int | None
    sinks: tuple[SinkRows, ...]
    before: int | None = None

    def lines(self) -> list[str]:
        """Return the report for people."""
        target = "nothing" if self.batch is None else f"batch {self.batch}"
        if not self.sinks:
            return [f"back to {target}: no sink has published rows after it"]
        found = [f"back to {target}: these rows stay published, and will be published again under new batch ids"]
        for sink in self.sinks:
            first, last = sink.batches[0], sink.batches[-1]
            span = f"batch {first}" if first == last else f"{len(sink.batches)} batches from {first} to {last}"
            found.append(f"  {sink.sink}: {sink.rows:,} rows of {span}")
        if self.before is not None:
            found.append(f"  and the rows of batches before {self.before}, which the log no longer counts")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        sinks = {s.sink: {"batches": list(s.batches), "rows": s.rows} for s in self.sinks}
        return {"back_to": self.batch, "sinks": sinks, "uncounted_before": self.before}


def find_superseded(recovered: Recovered, batch: int | None, *, released: Collection[int] = ()) -> Superseded:
    """Return what sinks published after `batch`, or at all where it is None.

    `released` are the held batches that a person has released: their rows were published as well.
    Raises CannotRestore when the batch is not kept.
    """
    if batch is not None:
        find_restorable(recovered, batch=batch)
    rows: dict[str, dict[int, int]] = {}
    for commit in (kept.commit for kept in recovered.kept if batch is None or kept.batch > batch):
        for published in (commit.staged, commit.held if commit.batch in released else {}):
            for sink, files in published.items():
                if files:
                    known = rows.setdefault(sink, {})
                    known[commit.batch] = known.get(commit.batch, 0) + sum(file.rows for file in files)
    return Superseded(
        batch=batch,
        sinks=tuple(
            SinkRows(sink=sink, batches=tuple(found), rows=sum(found.values())) for sink, found in sorted(rows.items())
        ),
        before=recovered.floor if batch is None and recovered.floor > 0 else None,
    )
