"""Compositions finish and begin again as Beam's do (SEMANTICS 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from trigger_runs import Step, firings

from penstock import count, micros
from penstock.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterFirst,
    AfterProcessingTime,
    Every,
    OrFinally,
    Purging,
    Repeatedly,
)

ONES = [Step(1)] * 8
LATER = AfterProcessingTime(micros(5))


@pytest.mark.parametrize(
    ("trigger", "steps", "expected"),
    [
        pytest.param(
            AfterFirst(AfterCount(3), AfterCount(2)), ONES, [None, 2] + [None] * 6, id="AfterFirst fires with the first"
        ),
        pytest.param(
            Repeatedly(AfterFirst(AfterCount(3), LATER)),
            [Step(1, time=0), Step(time=5), Step(1, time=6), Step(2, time=7), Step(time=11), Step(1, time=12)],
            [None, 1, None, 4, None, None],
            id="Repeatedly resets all parts of AfterFirst",
        ),
        pytest.param(
            AfterAll(AfterCount(2), LATER),
            [Step(2, time=0), Step(1, time=4), Step(time=5), Step(1, time=9)],
            [None, None, 3, None],
            id="AfterAll waits for the last",
        ),
        pytest.param(
            Repeatedly(AfterAll(AfterCount(1), AfterCount(3))),
            ONES,
            [None, None, 3, None, None, 6, None, None],
            id="Repeatedly resets AfterAll",
        ),
        pytest.param(
            AfterAny(Every(count(2)), AfterCount(5)),
            ONES,
            [None, 2, None, 4, 5, None, None, None],
            id="AfterAny finishes when one of them has",
        ),
        pytest.param(
            AfterEach(AfterCount(2), AfterCount(3), AfterCount(1)),
            ONES,
            [None, 2, None, None, 5, 6, None, None],
            id="AfterEach goes in order, each counts from its turn on",
        ),
        pytest.param(
            AfterEach(AfterCount(2), AfterCount(2)),
            [Step(4), Step(1), Step(1)],
            [4, None, 6],
            id="AfterEach: a batch is for the one whose turn it is",
        ),
        pytest.param(
            Repeatedly(AfterEach(AfterCount(1), AfterCount(2))),
            ONES[:6],
            [1, None, 3, 4, None, 6],
            id="Repeatedly begins AfterEach with its first",
        ),
        pytest.param(
            AfterEach(AfterCount(3), Every(count(2))),
            ONES,
            [None, None, 3, None, 5, None, 7, None],
            id="AfterEach stays with one that never finishes",
        ),
        pytest.param(
            OrFinally(Every(count(2)), AfterCount(5)),
            ONES,
            [None, 2, None, 4, 5, None, None, None],
            id="OrFinally fires a last time with its end",
        ),
        pytest.param(
            OrFinally(AfterCount(2), AfterCount(100)),
            ONES,
            [None, 2] + [None] * 6,
            id="OrFinally finishes with its main trigger",
        ),
        pytest.param(
            Repeatedly(OrFinally(Every(count(2)), AfterCount(3))),
            ONES,
            [None, 2, 3, None, 5, 6, None, 8],
            id="Repeatedly begins OrFinally again, both counts from 0",
        ),
        pytest.param(
            OrFinally(AfterCount(3), AfterCount(3)), ONES, [None, None, 3] + [None] * 5, id="OrFinally when both would"
        ),
        pytest.param(
            Purging(AfterEach(AfterCount(2), AfterCount(3))),
            ONES,
            [None, 2, None, None, 3, None, None, None],
            id="Purging a composition purges all of its firings",
        ),
        pytest.param(
            Repeatedly(AfterEach(AfterCount(2), Purging(AfterCount(1)))),
            ONES,
            [None, 2, 3, None, 2, 3, None, 2],
            id="Purging a part purges with it alone",
        ),
        pytest.param(
            AfterFirst(AfterCount(2), Purging(AfterCount(2))), ONES[:2], [None, 2], id="a purge wins over no purge"
        ),
        pytest.param(
            Repeatedly(Repeatedly(AfterCount(2))), ONES[:4], [None, 2, None, 4], id="Repeatedly of Repeatedly"
        ),
    ],
)
def test_a_composition_fires_when_its_definition_says(
    trigger: Any, steps: Sequence[Step], expected: Sequence[int | None]
) -> None:
    """How many rows the window has that is emitted in each batch; None where it is not."""
    assert firings(trigger, steps) == [*expected]
