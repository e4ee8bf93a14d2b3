"""What compositions of triggers take, and what the graph knows of them (SEMANTICS 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import count, seconds
from penstock.errors import JobError
from penstock.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterFirst,
    AfterProcessingTime,
    Every,
    Never,
    OrFinally,
    Purging,
    Repeatedly,
)

ONCE, EVERY = AfterCount(3), Every(count(3))


def test_a_composition_prints_as_the_job_writes_it() -> None:
    """With its parts, however deep."""
    trigger = OrFinally(Repeatedly(AfterFirst(ONCE, AfterProcessingTime(seconds(5)))), Purging(AfterEach(ONCE, EVERY)))
    assert str(trigger) == (
        "OrFinally(Repeatedly(AfterFirst(AfterCount(3), AfterProcessingTime(5 s))), "
        "Purging(AfterEach(AfterCount(3), Every(count(3)))))"
    )


@pytest.mark.parametrize(
    ("trigger", "fires", "finishes", "empties"),
    [
        pytest.param(AfterFirst(ONCE, Never()), True, True, True, id="AfterFirst fires with one"),
        pytest.param(AfterAll(ONCE, Never()), False, True, False, id="AfterAll needs all"),
        pytest.param(AfterAny(EVERY, ONCE), True, True, True, id="AfterAny finishes with one"),
        pytest.param(AfterAny(EVERY, EVERY), True, False, False, id="AfterAny of endless ones"),
        pytest.param(AfterEach(ONCE, EVERY), True, False, False, id="AfterEach ends with its last"),
        pytest.param(AfterEach(Never(), ONCE), False, False, False, id="AfterEach begins with its first"),
        pytest.param(AfterEach(ONCE, ONCE), True, True, True, id="AfterEach of finite ones"),
        pytest.param(AfterEach(Purging(ONCE), Purging(Never())), True, False, False, id="AfterEach stuck in its last"),
        pytest.param(AfterEach(Purging(ONCE), Purging(EVERY)), True, False, True, id="AfterEach of purging ones"),
        pytest.param(Repeatedly(ONCE), True, False, False, id="Repeatedly goes on"),
        pytest.param(Repeatedly(Purging(ONCE)), True, False, True, id="Repeatedly purging"),
        pytest.param(Purging(EVERY), True, False, True, id="Purging empties"),
        pytest.param(Purging(Never()), False, False, False, id="Purging what never fires"),
        pytest.param(OrFinally(EVERY, ONCE), True, True, True, id="OrFinally ends by its second"),
        pytest.param(OrFinally(EVERY, Never()), True, False, False, id="OrFinally without an end"),
    ],
)
def test_the_graph_knows_which_fire_finish_and_empty_the_window(
    trigger: Any, *, fires: bool, finishes: bool, empties: bool
) -> None:
    """Rows stay where a firing neither purges nor is the last one."""
    assert (trigger.fires, trigger.finishes, trigger.empties) == (fires, finishes, empties)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(AfterFirst, id="none"),
        pytest.param(lambda: AfterAll(ONCE, 3), id="a number"),
        pytest.param(lambda: Repeatedly(AfterCount), id="a class"),
        pytest.param(lambda: OrFinally(ONCE, None), id="nothing to end by"),
        pytest.param(lambda: Purging("count"), id="a text"),
    ],
)
def test_what_is_no_trigger_is_refused_at_the_users_line(wrong: Callable[[], object]) -> None:
    """Classes are no triggers: `AfterCount` has to be called."""
    with pytest.raises(JobError) as refused:
        wrong()
    assert __file__ in str(refused.value)
