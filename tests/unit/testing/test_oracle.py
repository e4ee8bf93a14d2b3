"""The oracle sees each kind of harm, and nothing where there is none (FAULTS 4.5)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from oracle import Decided, Ledger, Windows, judge

TIMES = [0, 1, 5, 2, 9, 13]
WINDOWS = Windows(times=TIMES, size=4, keys=2)
GOOD = Ledger(
    inputs=6,
    decided=[
        Decided(batch=0, start=0, end=2),
        Decided(batch=1, start=2, end=4, watermark=4),
        Decided(batch=2, start=4, end=6, watermark=4),
        Decided(batch=3, start=6, end=6, watermark=99),
    ],
    copies={"raw": [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (2, 5)]},
    finished=True,
    windows=WINDOWS,
    closed=[(1, 0, 4, (0,)), (1, 1, 4, (1,)), (3, 0, 8, (2,)), (3, 0, 12, (4,)), (3, 1, 16, (5,))],
    late=[(1, 3)],
)


def test_a_run_without_harm_is_judged_well() -> None:
    """Late rows, a batch without rows and windows that stay open over batches included."""
    assert judge(GOOD) == []


def test_an_empty_ledger_proves_nothing() -> None:
    """A run that did nothing at all must not pass for a good one."""
    assert judge(replace(GOOD, inputs=0)) != []
    assert judge(replace(GOOD, copies={})) != []
    assert judge(replace(GOOD, decided=[], copies={"raw": []}, closed=[], late=[])) == [
        "the run ended at row 0 of 6",
        "windows and late rows together are not the inputs",
    ]


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        ({"copies": {"raw": GOOD.copies["raw"][1:]}}, "raw has lost row 0 of batch 0"),
        ({"copies": {"raw": [*GOOD.copies["raw"], (2, 5)]}}, "raw shows row 5 of batch 2 2 times"),
        ({"copies": {"raw": [*GOOD.copies["raw"], (4, 6)]}}, "raw shows row 6 in batch 4, which was not decided so"),
        ({"copies": {"raw": [*GOOD.copies["raw"][:-1], (3, 5)]}}, "raw has lost row 5 of batch 2"),
        ({"copies": GOOD.copies | {"other": []}}, "other has lost row 0 of batch 0"),
        ({"closed": GOOD.closed[1:]}, "windows has lost (1, 0, 4, (0,))"),
        ({"closed": [*GOOD.closed, GOOD.closed[0]]}, "windows shows (1, 0, 4, (0,)) 2 times"),
        ({"closed": [(1, 0, 4, (0, 2)), *GOOD.closed[1:]]}, "windows shows (1, 0, 4, (0, 2)), which a recomp"),
        ({"closed": [(2, 0, 4, (0,)), *GOOD.closed[1:]]}, "windows shows (2, 0, 4, (0,)), which a recomp"),
        ({"late": []}, "late has lost (1, 3)"),
        ({"late": [(1, 3), (2, 4)]}, "late shows (2, 4), which a recomputation does not"),
        ({"decided": GOOD.decided[:-1]}, "windows shows (3, 0, 8, (2,)), which a recomputation does not"),
        ({"decided": [*GOOD.decided[:1], *GOOD.decided[2:]]}, "batch 2 is decided where 1 is next"),
        ({"decided": [*GOOD.decided, replace(GOOD.decided[-1], batch=3)]}, "batch 3 is decided where 4 is next"),
        ({"decided": [replace(GOOD.decided[0], start=1), *GOOD.decided[1:]]}, "batch 0 begins at 1 and not at 0"),
        ({"inputs": 7}, "the run ended at row 6 of 7"),
        ({"decided": [*GOOD.decided[:3], replace(GOOD.decided[3], watermark=3)]}, "the watermark of batch 3 went back"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_harm_is_named(harm: dict[str, object], sentence: str) -> None:
    """A lost row, one shown twice, one of a batch that nobody decided, a wrong window, a gap, a watermark."""
    harms = judge(replace(GOOD, **harm))
    assert any(line.startswith(sentence) for line in harms), harms


def test_an_unfinished_run_may_owe_its_newest_batch_only() -> None:
    """A committed batch is published a little later; the one before it was published before."""
    cut = replace(GOOD, decided=GOOD.decided[:2], finished=False, closed=[], late=[])
    assert judge(replace(cut, copies={"raw": GOOD.copies["raw"][:2]})) == []
    assert judge(replace(cut, copies={"raw": GOOD.copies["raw"][:3]})) == []
    assert judge(replace(cut, copies={"raw": GOOD.copies["raw"][1:3]})) == ["raw has lost row 0 of batch 0"]


def test_after_a_restore_the_rows_behind_it_are_decided_again() -> None:
    """Under new ids, with the watermark and the windows of the batch that was restored; the old ones stay shown."""
    again = [
        Decided(batch=6, start=2, end=6, restored=0),
        Decided(batch=7, start=6, end=6, watermark=99),
    ]
    closed = [(7, 0, 4, (0,)), (7, 1, 4, (1, 3)), (7, 0, 8, (2,)), (7, 0, 12, (4,)), (7, 1, 16, (5,))]
    restored = replace(
        GOOD,
        decided=[*GOOD.decided, *again],
        copies={"raw": [*GOOD.copies["raw"], *((6, row) for row in range(2, 6))]},
        closed=[*GOOD.closed, *closed],
    )
    assert judge(restored) == []
    assert judge(replace(GOOD, restored=3)) == []
    assert judge(replace(GOOD, restored=0)) == ["the run ended at row 2 of 6"]
    assert judge(replace(restored, closed=GOOD.closed)) != []
    assert judge(replace(restored, copies=GOOD.copies)) != []
    assert judge(replace(restored, decided=[*GOOD.decided, replace(again[0], start=1), again[1]])) != []
    assert judge(replace(restored, decided=[*GOOD.decided, replace(again[0], restored=None), again[1]])) != []


def test_a_batch_that_was_given_up_is_no_gap() -> None:
    """Its id is not used again."""
    decided = [replace(d, batch=d.batch + 1) for d in GOOD.decided]
    copies = {"raw": [(batch + 1, row) for batch, row in GOOD.copies["raw"]]}
    moved = Ledger(inputs=6, decided=decided, copies=copies, finished=True)
    assert judge(replace(moved, given_up=frozenset({0}))) == []
    assert judge(moved) == ["batch 1 is decided where 0 is next"]
