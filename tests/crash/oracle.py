"""Judge what a run left behind: pure functions over a ledger, knowing nothing of logs, drivers or faults (FAULTS 4.5).

A ledger is what the world shows (rows of the source, visible rows of the tables) and what was decided (batches with
their ranges and watermarks). The judgement is a list of sentences, empty where nothing is wrong:
no loss, no duplicate, nothing of a batch that was not decided, watermarks that never go back, windows equal to a
recomputation over the same input, and every row in exactly one window or among the late ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BEGINNING = -(2**63)
NOTHING = -1


@dataclass(frozen=True, kw_only=True)
class Decided:
    """A batch that has a Commit: it read ids `start` to `end` (not included) and closed by `watermark` (seconds).

    `restored` is the batch that a Restore before it went back to, `NOTHING` for an empty one, None without Restore.
    """

    batch: int
    start: int
    end: int
    watermark: float = BEGINNING
    restored: int | None = None


@dataclass(frozen=True, kw_only=True)
class Windows:
    """How rows belong to windows: tumbling, `size` seconds long, by id modulo `keys`; `times` are the rows' own."""

    times: Sequence[float]
    size: int
    keys: int

    def of(self, row: int) -> tuple[int, int]:
        """Return the key and the end of a row's window."""
        return row % self.keys, (int(self.times[row] // self.size) + 1) * self.size


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What there is to judge.

    `inputs` is the number of rows of the source, whose ids are 0, 1, 2, …
    `copies` maps each sink that shows rows as they are to (batch, id) of what it shows, in order.
    `closed` are (batch, key, end, ids) of the windows that were shown, `late` (batch, id) of the late rows.
    `finished` says that the run came to its end: then all that was read must be there.
    """

    inputs: int
    decided: Sequence[Decided]
    copies: Mapping[str, Sequence[tuple[int, int]]]
    finished: bool
    windows: Windows | None = None
    closed: Sequence[tuple[int, int, int, tuple[int, ...]]] = ()
    late: Sequence[tuple[int, int]] = ()
    given_up: frozenset[int] = field(default_factory=frozenset)
    """Batch ids that a Void gave up: no gap."""
    restored: int | None = None
    """What a Restore after the newest batch went back to."""
    taken_back: frozenset[int] = field(default_factory=frozenset)
    """Batches whose rows a Restore had the sinks take back."""
    unsettled: frozenset[int] = field(default_factory=frozenset)
    """Batches whose rows may be there or not, because that is still to be done."""


def judge(ledger: Ledger) -> list[str]:
    """Return what is wrong, one sentence each."""
    if not ledger.inputs or not ledger.copies:
        return ["there is nothing to judge: no input, or no sink"]
    wrongs = list(_batches(ledger))
    for sink, shown in ledger.copies.items():
        wrongs += _copies(ledger, sink, shown)
    if ledger.windows is not None:
        wrongs += _closed(ledger, ledger.windows)
    return wrongs


def _batches(ledger: Ledger) -> Iterator[str]:
    """Judge the decisions: ids in order without gaps, ranges end to end, watermarks that never go back.

    After a Restore ids go on, perhaps above those of batches that were begun; the rest is that of the batch restored.
    """
    expected, at, mark = 0, 0, float(BEGINNING)
    after: dict[int, tuple[int, float]] = {NOTHING: (0, BEGINNING)}
    for batch in ledger.decided:
        while expected in ledger.given_up:
            expected += 1
        if batch.restored is not None:
            at, mark = after[batch.restored]
            expected = max(expected, batch.batch)
        if batch.batch != expected:
            yield f"batch {batch.batch} is decided where {expected} is next"
        if batch.start != at:
            yield f"batch {batch.batch} begins at {batch.start} and not at {at}"
        if batch.watermark < mark:
            yield f"the watermark of batch {batch.batch} went back from {mark} to {batch.watermark}"
        expected, at, mark = batch.batch + 1, batch.end, max(mark, batch.watermark)
        after[batch.batch] = at, mark
    if ledger.restored is not None:
        at, _ = after[ledger.restored]
    if ledger.finished and at != ledger.inputs:
        yield f"the run ended at row {at} of {ledger.inputs}"


def _copies(ledger: Ledger, sink: str, shown: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Judge a sink that shows each row as it is."""
    wanted = {
        (d.batch, row) for d in ledger.decided for row in range(d.start, d.end) if d.batch not in ledger.taken_back
    }
    counts = Counter(shown)
    for (batch, row), count in counts.items():
        if (batch, row) not in wanted:
            yield f"{sink} shows row {row} in batch {batch}, which was not decided so"
        elif count > 1:
            yield f"{sink} shows row {row} of batch {batch} {count} times"
    newest = ledger.decided[-1].batch if ledger.decided else None
    loose = ledger.unsettled if ledger.finished else {newest, *ledger.unsettled}
    must = {(b, row) for b, row in wanted if b not in loose}
    for batch, row in sorted(must - counts.keys()):
        yield f"{sink} has lost row {row} of batch {batch}"


def _closed(ledger: Ledger, windows: Windows) -> Iterator[str]:
    """Judge windows and late rows against a recomputation over the decided batches."""
    wanted, late = _recomputed(ledger, windows)
    newest = ledger.decided[-1].batch if ledger.decided else None
    loose = ledger.unsettled if ledger.finished else {newest, *ledger.unsettled}
    for name, expected, shown in (("windows", wanted, Counter(ledger.closed)), ("late", late, Counter(ledger.late))):
        must: set[Any] = {row for row in expected if row[0] not in loose}
        for row, count in shown.items():
            if row not in expected:
                yield f"{name} shows {row}, which a recomputation does not"
            elif count > 1:
                yield f"{name} shows {row} {count} times"
        for row in sorted(must - shown.keys()):
            yield f"{name} has lost {row}"
    if ledger.finished and all(batch.restored is None for batch in ledger.decided):
        placed = Counter([i for _, _, _, ids in ledger.closed for i in ids] + [i for _, i in ledger.late])
        if placed != Counter(range(ledger.inputs)):
            yield "windows and late rows together are not the inputs"


def _recomputed(
    ledger: Ledger, windows: Windows
) -> tuple[set[tuple[int, int, int, tuple[int, ...]]], set[tuple[int, int]]]:
    opened: dict[tuple[int, int], list[int]] = {}
    closed: set[tuple[int, int, int, tuple[int, ...]]] = set()
    late: set[tuple[int, int]] = set()
    after: dict[int, dict[tuple[int, int], list[int]]] = {NOTHING: {}}
    for batch in ledger.decided:
        if batch.restored is not None:
            opened = {window: list(rows) for window, rows in after[batch.restored].items()}
        for row in range(batch.start, batch.end):
            if windows.of(row)[1] <= batch.watermark:
                late.add((batch.batch, row))
            else:
                opened.setdefault(windows.of(row), []).append(row)
        for key, end in [window for window in opened if window[1] <= batch.watermark]:
            closed.add((batch.batch, key, end, tuple(opened.pop((key, end)))))
        after[batch.batch] = {window: list(rows) for window, rows in opened.items()}
    gone = ledger.taken_back
    return {row for row in closed if row[0] not in gone}, {row for row in late if row[0] not in gone}
