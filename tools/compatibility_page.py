"""Write docs/compatibility.md: what a start makes of a job that was changed, for each way to start.

The table is here once. `tests/unit/runtime/restore/test_compatibility_matrix.py` does what each cell is about and fails where something
else comes of it; the page is written from the same table.

python -m tools.compatibility_page            # print it
python -m tools.compatibility_page --write    # put it in place
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from pathlib import Path

from tools.pages import write_or_print

# ruff: noqa: E501 - a sentence of the page is a line

PAGE = Path(__file__).resolve().parents[1] / "docs" / "compatibility.md"


class Mode(Enum):
    """Say how a job starts; the value is the head of a column."""

    LAST = "last commit"
    BATCH = "`batch=N`"
    SAVED = "`saved=NAME`"
    SNAPSHOT = "`snapshot=V`"
    PARTITIONS = "`--partitions P`"
    EMPTY = "`empty`"


class Cell(Enum):
    """Say what comes of a start."""

    ON = "goes on"
    DROP = "`--drop`"
    STEPS = "refused"
    PARTITIONS = "refused (015)"
    ANEW = "anew"


@dataclass(frozen=True, slots=True)
class Change:
    """Hold a change of a job in the words of the page, and what comes of each start; `area` heads its table."""

    area: str
    words: str
    cells: Mapping[Mode, Cell]


def _change(area: str, words: str, cell: Cell, **but: Cell) -> Change:
    """Return a change with one outcome, but for the starts that are named, and for `empty`."""
    named = {Mode[mode.upper()]: other for mode, other in but.items()}
    return Change(area, words, {**dict.fromkeys(Mode, cell), Mode.EMPTY: Cell.ANEW, **named})


_FUNCTIONS, _WINDOWS, _JOB = "State functions", "Windows", "Steps, sources and sinks"

TABLE = {
    "column new": _change(_FUNCTIONS, "a column of state is new", Cell.ON),
    "column wider": _change(_FUNCTIONS, "a column of state is wider", Cell.ON),
    "columns elsewhere": _change(_FUNCTIONS, "columns of state stand in another order", Cell.ON),
    "column gone": _change(_FUNCTIONS, "a column of state is gone", Cell.STEPS),
    "column narrower": _change(_FUNCTIONS, "a column of state is narrower", Cell.STEPS),
    "key of another type": _change(_FUNCTIONS, "a key has another type, also a wider one", Cell.STEPS),
    "another key": _change(_FUNCTIONS, "another column is the key", Cell.STEPS),
    "timeout new": _change(_FUNCTIONS, "a timeout is new", Cell.STEPS),
    "timeout gone": _change(_FUNCTIONS, "a timeout is gone", Cell.STEPS),
    "timeout longer": _change(_FUNCTIONS, "`idle` lasts longer", Cell.ON),
    "function": _change(_FUNCTIONS, "only the function's code is another", Cell.ON),
    "windows longer": _change(_WINDOWS, "windows have another length", Cell.STEPS),
    "another kind of windows": _change(_WINDOWS, "windows are of another kind", Cell.STEPS),
    "an aggregate more": _change(_WINDOWS, "there is one aggregate more", Cell.ON),
    "an aggregate gone": _change(_WINDOWS, "an aggregate is gone", Cell.ON),
    "another aggregate": _change(_WINDOWS, "an aggregate is another: one that is gone and one that is new", Cell.ON),
    "an aggregate cast": _change(
        _WINDOWS, "a sum of integers is cast to decimal or double, and keeps its sums", Cell.ON
    ),
    "aggregates elsewhere": _change(_WINDOWS, "aggregates stand in another order, or have other names", Cell.ON),
    "blanks": _change(_WINDOWS, "an expression has other blanks or letter case", Cell.ON),
    "another type": _change(_WINDOWS, "what an aggregate reads has a narrower type", Cell.STEPS),
    "another window key": _change(_WINDOWS, "another column is the key", Cell.STEPS),
    "late rows": _change(_WINDOWS, "late rows are handed over instead of dropped", Cell.ON),
    "step new": _change(_JOB, "a step is new, and begins with nothing", Cell.ON),
    "step gone": _change(_JOB, "a step with state is gone", Cell.DROP),
    "step renamed": _change(_JOB, "a step with state has another name, and begins with nothing", Cell.DROP),
    "partitions": _change(_JOB, "the number of partitions", Cell.PARTITIONS, snapshot=Cell.ON, partitions=Cell.ON),
    "source new": _change(_JOB, "a source is new, and read from its beginning", Cell.ON),
    "source gone": _change(_JOB, "a source is gone", Cell.STEPS),
    "source renamed": _change(_JOB, "a source has another name", Cell.STEPS),
    "sink new": _change(_JOB, "a sink is new", Cell.ON),
    "sink gone": _change(_JOB, "a sink is gone", Cell.ON),
}

HEAD = """# What a start makes of a changed job

A job goes on from its checkpoint with other code, as far as nothing that is kept would be lost or read wrongly. `penstock diff JOB` tells it of your job; the tables below tell it of each change, for each way to [start](checkpoints.md#restart-from-a-checkpoint).

| cell | what a start does |
|---|---|
| goes on | it goes on: state and positions are those of the batch that is gone on from |
| `--drop` | it is refused with `PEN-CKP-016`, unless `--drop STEP` lets the state of that step go |
| refused | it is refused with `PEN-CKP-016`, and nothing has changed: the code of before goes on |
| refused (015) | it is refused with `PEN-CKP-015`; `--partitions P` has the state written anew |
| anew | it begins with no state, at the beginning of its sources; the change does not count |

`--partitions P` here means the change together with another number of partitions, from the last commit. It goes with the other ways to start as well.

This page is written by `python -m tools.compatibility_page --write`, and each cell is what a test has seen a start do.
"""

TAIL = """## What else counts
- A step that has another name in the code than in the checkpoint is a step that is gone and one that is new. So are a source and a sink.
- A sink may go when its last rows are known to be published, as a driver says that leaves on purpose. It may also write to another table then: what was published stays in the old one. Behind one that was killed, start once as it was, or let the last rows go with `penstock sinks JOB skip SINK`: from the last commit, and from anything that is of that batch, that is asked for with `PEN-CKP-016`. A restore to a batch before it goes on: the rows are computed again, for the sinks that there are.
- A source or a step that is new is refused as long as a batch is begun and not committed: start once as it was, or give that batch up with `--from batch=N`.
- A restore that is refused changes neither state nor positions. Where a changed job has gone on, the code of before can go back to any batch that is kept from before.
- An aggregate that is new counts the rows that come from then on, in windows that are open as well; windows that begin later have it whole. So does `first`, which is the first row since then. One that needs only what is kept already, as a mean beside a sum of doubles, has it whole at once. One that is dropped is gone with the first batch without it: added again it is new, whatever the files still have. All ways to make windows, and all ways to start, keep this rule; `penstock diff` says which is which.
- What a table of a sink does not take is refused with `PEN-SNK-003`, whichever way the job starts.
"""


def render() -> str:
    """Return the page."""
    lines = [HEAD]
    for area, changes in groupby(TABLE.values(), key=lambda change: change.area):
        lines += [
            f"## {area}",
            f"| change | {' | '.join(mode.value for mode in Mode)} |",
            "|---" * (len(Mode) + 1) + "|",
        ]
        lines += [f"| {one.words} | {' | '.join(one.cells[mode].value for mode in Mode)} |" for one in changes]
        lines.append("")
    return "\n".join([*lines, TAIL])


if __name__ == "__main__":
    sys.exit(write_or_print(PAGE, render()))
