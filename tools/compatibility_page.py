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

    ON = "resumes"
    DROP = "`--drop`"
    STEPS = "rejected"
    PARTITIONS = "rejected (015)"
    ANEW = "from start"


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
_DUPLICATES, _JOINS, _GLOBALS = "Deduplication", "Joins", "Global windows"

TABLE = {
    "column new": _change(_FUNCTIONS, "a column of state is new", Cell.ON),
    "column wider": _change(_FUNCTIONS, "a column of state is wider", Cell.ON),
    "columns elsewhere": _change(_FUNCTIONS, "columns of state are in another order", Cell.ON),
    "column gone": _change(_FUNCTIONS, "a column of state is removed", Cell.STEPS),
    "column narrower": _change(_FUNCTIONS, "a column of state is narrower", Cell.STEPS),
    "key of another type": _change(_FUNCTIONS, "a key has another type, also a wider one", Cell.STEPS),
    "another key": _change(_FUNCTIONS, "another column is the key", Cell.STEPS),
    "timeout new": _change(_FUNCTIONS, "a timeout is new", Cell.STEPS),
    "timeout gone": _change(_FUNCTIONS, "a timeout is removed", Cell.STEPS),
    "timeout longer": _change(_FUNCTIONS, "`idle` lasts longer", Cell.ON),
    "function": _change(_FUNCTIONS, "only the function's code is changed", Cell.ON),
    "windows longer": _change(_WINDOWS, "windows have another length", Cell.STEPS),
    "another kind of windows": _change(_WINDOWS, "windows are of another kind", Cell.STEPS),
    "an aggregate more": _change(_WINDOWS, "an aggregate is new", Cell.ON),
    "an aggregate gone": _change(_WINDOWS, "an aggregate is removed", Cell.ON),
    "another aggregate": _change(_WINDOWS, "an aggregate is replaced by another", Cell.ON),
    "an aggregate cast": _change(
        _WINDOWS, "a sum of integers is cast to decimal or double, and keeps its sums", Cell.ON
    ),
    "aggregates elsewhere": _change(_WINDOWS, "aggregates are reordered or renamed", Cell.ON),
    "blanks": _change(_WINDOWS, "an expression has other blanks or letter case", Cell.ON),
    "another type": _change(_WINDOWS, "the input of an aggregate has a narrower type", Cell.STEPS),
    "another window key": _change(_WINDOWS, "another column is the key", Cell.STEPS),
    "late rows": _change(_WINDOWS, "late data goes to a side output instead of being dropped", Cell.ON),
    "early panes otherwise": _change(
        _WINDOWS, "early panes come at another time, or after other numbers of rows", Cell.ON
    ),
    "early panes new": _change(_WINDOWS, "early panes are new or removed", Cell.STEPS),
    "remembered longer": _change(_DUPLICATES, "keys are remembered for longer", Cell.ON),
    "remembered for less": _change(_DUPLICATES, "keys are remembered for less time", Cell.ON),
    "duplicates of another key": _change(_DUPLICATES, "a key column is new or removed", Cell.STEPS),
    "duplicates by keys elsewhere": _change(_DUPLICATES, "key columns are in another order", Cell.STEPS),
    "bounds narrower": _change(_JOINS, "`within` is narrower", Cell.ON),
    "bounds wider": _change(_JOINS, "`within` is wider on either end", Cell.STEPS),
    "another kind of join": _change(_JOINS, "an inner join becomes an outer one", Cell.STEPS),
    "an outer side less": _change(_JOINS, "a side of an outer join is outer no more", Cell.STEPS),
    "input column new": _change(_JOINS, "a column of an input is new", Cell.ON),
    "input column wider": _change(_JOINS, "a column of an input is wider", Cell.ON),
    "input column gone": _change(_JOINS, "a column of an input is removed", Cell.STEPS),
    "input column moved": _change(_JOINS, "a column moves to the other input", Cell.STEPS),
    "trigger": _change(_GLOBALS, "another trigger, which begins again with the next row of a key", Cell.ON),
    "evictor": _change(_GLOBALS, "another evictor", Cell.ON),
    "rows read otherwise": _change(_GLOBALS, "with an evictor: aggregates read other expressions", Cell.STEPS),
    "evictor gone": _change(_GLOBALS, "of aggregates: an evictor is new or removed", Cell.STEPS),
    "partials of another aggregate": _change(
        _GLOBALS, "without an evictor: an aggregate is new, removed or replaced", Cell.STEPS
    ),
    "step new": _change(_JOB, "a step is new, and starts empty", Cell.ON),
    "step gone": _change(_JOB, "a step with state is removed", Cell.DROP),
    "step renamed": _change(_JOB, "a step with state is renamed, and starts empty", Cell.DROP),
    "partitions": _change(_JOB, "the number of partitions", Cell.PARTITIONS, snapshot=Cell.ON, partitions=Cell.ON),
    "source new": _change(_JOB, "a source is new, and read from its beginning", Cell.ON),
    "source gone": _change(_JOB, "a source is removed", Cell.DROP),
    "source renamed": _change(_JOB, "a source is renamed, and read from its beginning", Cell.DROP),
    "sink new": _change(_JOB, "a sink is new", Cell.ON),
    "sink gone": _change(_JOB, "a sink is removed", Cell.ON),
}

HEAD = """# Changed jobs: schema evolution and compatibility

Which changes of a job's code are compatible with its state. A job can resume from its checkpoint with changed code, unless state would be lost or misread.
The tables below list each change, for each way to [start](checkpoints.md#restart-from-a-checkpoint). To check your own job before a start:

```
penstock diff flights                  whether the current code can resume from the checkpoint, step by step
penstock diff flights --drop hourly    the same, if the state of the removed step hourly is dropped
```

| cell | what a start does |
|---|---|
| resumes | The job resumes with that batch's state and source positions |
| `--drop` | The start is rejected with `PEN-CKP-016`, unless `--drop NAME` drops the state of that step, or the position of that source |
| rejected | The start is rejected with `PEN-CKP-016`, and nothing has changed. The previous code resumes |
| rejected (015) | The start is rejected with `PEN-CKP-015`. `--partitions P` rewrites the state |
| from start | The job starts without state, at the beginning of its sources. The change does not matter |

The column `--partitions P` is the change together with another number of partitions, from the last commit. The option can be combined with the other ways to start as well.

This page is written by `python -m tools.compatibility_page --write`. A test starts a job for each cell and compares.
"""

TAIL = """## Rules
- A renamed step is one that is removed and one that is new. So are a renamed source and a renamed sink.
- A new source or step is rejected while a batch is begun and not committed. Start once with the previous code, or abandon that batch with `--from batch=N`.
- A rejected restore changes neither state nor positions. After a changed job has run, the previous code can restore any kept batch from before the change.
- Columns that a sink's table does not accept are rejected with `PEN-SNK-003`, for every way to start.

### Removed sinks
- You may remove a sink, or give it another table, once its last rows are known to be published. A driver that leaves on purpose records that. Published rows stay in the old table.
- After a crash, start once with the sink, or skip its last rows with `penstock sinks JOB skip SINK`. Until then a start from the last commit, or from anything of that batch, is rejected with `PEN-CKP-016`.
- A restore to an earlier batch resumes: the rows are computed a second time, for the current sinks.

### Changed aggregates
- A new aggregate counts the rows from then on. In windows that are already open it lacks the earlier rows, and `first` is the first row since then. Later windows are complete.
- A new aggregate that needs only stored partials, such as a mean beside a sum of doubles, is complete at once.
- `count_distinct` and `approx_count_distinct` over values of another type are rejected: no value of one type is known as one of another.
- A removed aggregate is lost with the first batch without it. If you add it later, it is new, whatever the files still have.
- These rules hold for all window strategies and all ways to start. `penstock diff` shows which one applies.
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
