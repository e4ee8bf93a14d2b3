"""Each ready-made trigger, judged once a batch after its rows, as Beam and Flink define them (SEMANTICS 6)."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

import pytest
from trigger_runs import Step, firings

from penstock import count, micros
from penstock.state import EVENT
from penstock.time.clock import END_OF_TIME
from penstock.triggers import (
    AfterCount,
    AfterDelta,
    AfterEventTime,
    AfterProcessingTime,
    AtEnd,
    Every,
    Never,
    Purging,
    Repeatedly,
)


@pytest.mark.parametrize(
    ("trigger", "steps", "expected"),
    [
        # Rows are given by their number, or by (event time, value).
        pytest.param(AfterCount(3), [Step(2), Step(1), Step(5)], [None, 3, None], id="AfterCount fires once"),
        pytest.param(AfterCount(3), [Step(7)], [7], id="AfterCount fires once with all rows of a batch"),
        pytest.param(
            Repeatedly(AfterCount(3)), [Step(7), Step(2), Step(1)], [7, None, 10], id="Repeatedly counts from 0 again"
        ),
        pytest.param(Every(count(3)), [Step(7), Step(2), Step(1)], [7, None, 10], id="Every(count) is that"),
        pytest.param(Purging(Every(count(3))), [Step(4), Step(2), Step(1)], [4, None, 3], id="Purging drops the rows"),
        pytest.param(
            AfterProcessingTime(micros(5)),
            [Step(1, time=10), Step(1, time=14), Step(time=15), Step(1, time=30)],
            [None, None, 2, None],
            id="AfterProcessingTime counts from the first row",
        ),
        pytest.param(
            Repeatedly(AfterProcessingTime(micros(5))),
            [Step(1, time=10), Step(time=17), Step(time=40), Step(1, time=41), Step(time=46)],
            [None, 1, None, None, 2],
            id="AfterProcessingTime begins again with the next row",
        ),
        pytest.param(AfterProcessingTime(micros(0)), [Step(1, time=3)], [1], id="AfterProcessingTime without a delay"),
        pytest.param(
            AfterEventTime(micros(5)),
            [Step([(20, 0), (10, 0)]), Step(mark=14), Step(mark=15)],
            [None, None, 2],
            id="AfterEventTime counts from the earliest row",
        ),
        pytest.param(
            AfterEventTime(micros(5)), [Step([(-20, 0)]), Step(mark=-15)], [None, 1], id="AfterEventTime before 1970"
        ),
        pytest.param(
            AfterDelta("v", 3),
            [Step([(0, 10), (0, 13)]), Step([(0, 7)]), Step([(0, 6.9)]), Step([(0, 99)])],
            [None, None, 4, None],
            id="AfterDelta in either direction, not at the threshold",
        ),
        pytest.param(
            Repeatedly(AfterDelta("v", 3)),
            [Step([(0, 10), (0, 20), (0, 12)]), Step([(0, 15)]), Step([(0, 8)])],
            [3, None, 5],
            id="AfterDelta goes on from the last row of the batch that fired it",
        ),
        pytest.param(
            AfterDelta("v", 3),
            [Step([(0, None), (0, 1)]), Step([(0, None)]), Step([(0, 5)])],
            [None, None, 4],
            id="AfterDelta passes nulls over",
        ),
        pytest.param(
            Repeatedly(AfterDelta("v", 3)),
            [Step([(0, nan), (0, 1), (0, nan)]), Step([(0, 5), (0, nan)]), Step([(0, nan)]), Step([(0, 9)])],
            [None, 5, None, 7],
            id="AfterDelta passes NaN over",
        ),
        pytest.param(
            Every(micros(10)),
            [Step(1, time=11), Step(time=19), Step(time=20), Step(1, time=25), Step(time=47), Step(time=50)],
            [None, None, 1, None, 2, 2],
            id="Every fires at multiples while there are rows, once for several",
        ),
        pytest.param(
            Every(micros(10)),
            [Step(1, time=14, zero=3), Step(time=22, zero=3), Step(time=23, zero=3)],
            [None, None, 1],
            id="Every counts from the zero time",
        ),
        pytest.param(
            Every(micros(10)),
            [Step(1, time=10), Step(1, time=20), Step(time=29), Step(time=30)],
            [1, 2, None, 2],
            id="Every fires the rows of a batch at a multiple",
        ),
        pytest.param(
            Purging(Every(micros(10))),
            [Step(1, time=10), Step(1, time=20), Step(1, time=30)],
            [1, 1, 1],
            id="Every fires the rows of a batch at a multiple, also into an empty window",
        ),
        pytest.param(
            Purging(Every(micros(10))),
            [Step(1, time=5), Step(time=10), Step(time=20), Step(1, time=21), Step(time=30)],
            [None, 1, None, None, 1],
            id="Every fires nothing for an empty window",
        ),
        pytest.param(
            Every(micros(10), clock=EVENT),
            [Step([(12, 0), (31, 0)]), Step(mark=19), Step(mark=20), Step(mark=29), Step(mark=100), Step(mark=109)],
            [None, None, 2, None, 2, None],
            id="Every by event time, from 1970, at the watermark",
        ),
        *(
            pytest.param(
                Every(micros(10), clock=EVENT),
                [*(Step([(t, 0)]) for t in times), *(Step(mark=mark) for mark in (19, 20, 29, 39, 40))],
                [None, None, None, 2, None, 2, 2],
                id=f"Every by event time after the earliest row, {times}",
            )
            for times in ((12, 31), (31, 12))
        ),
        pytest.param(
            Every(micros(10), clock=EVENT),
            [Step([(31, 0), (12, 0)], mark=11), Step(mark=20)],
            [None, 2],
            id="Every by event time after the earliest row of a batch",
        ),
        pytest.param(
            Every(micros(10), clock=EVENT),
            [Step(mark=95), Step([(3, 0)]), Step(mark=99), Step(mark=100)],
            [None, None, None, 1],
            id="Every by event time fires a row that was late at the next multiple",
        ),
        pytest.param(
            Every(micros(10), clock=EVENT),
            [Step([(12, 0)], mark=11), Step([(14, 0)], mark=31), Step(mark=40)],
            [None, 2, 2],
            id="Every by event time still fires for a multiple that the batch passes",
        ),
        pytest.param(
            Every(micros(10), clock=EVENT),
            [Step([(12, 0)], mark=31, late=10), Step([(35, 0)], mark=END_OF_TIME, late=31)],
            [1, 2],
            id="Every by event time fires what a chained step gets with the watermark",
        ),
        pytest.param(
            Every(micros(10), clock=EVENT), [Step([(-12, 0)]), Step(mark=-10)], [None, 1], id="Every before 1970"
        ),
        pytest.param(AtEnd(), [Step(3), Step(mark=10**15), Step(mark=END_OF_TIME)], [None, None, 3], id="AtEnd"),
        pytest.param(Never(), [Step(3), Step(mark=END_OF_TIME)], [None, None], id="Never"),
    ],
)
def test_a_trigger_fires_when_its_definition_says(
    trigger: Any, steps: Sequence[Step], expected: Sequence[int | None]
) -> None:
    """How many rows the window has that is emitted in each batch; None where it is not."""
    assert firings(trigger, steps) == [*expected]


def test_keys_are_judged_one_by_one() -> None:
    """A key with all the rows fires, another does not."""
    assert firings(Every(count(3)), [Step(3)], other=2) == [3]
