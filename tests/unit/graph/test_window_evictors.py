"""What evictors take (SEMANTICS 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import count, seconds
from penstock.errors import JobError
from penstock.evictors import KeepDelta, KeepLast, KeepNewest, RowEvictor
from penstock.graph.window_evictors import checked_evictor, evictor_words
from penstock.triggers import Moment


def test_an_evictor_prints_as_the_job_writes_it() -> None:
    """`count(3)` is a number of rows too."""
    evictors = (KeepLast(count(3)), KeepNewest(seconds(5)), KeepDelta("v", 2))
    assert [str(evictor) for evictor in evictors] == ["KeepLast(3)", "KeepNewest(5 s)", "KeepDelta('v', 2)"]
    assert [checked_evictor(evictor) for evictor in evictors] == [*evictors]


class All:
    """An evictor of the user's, which evicts nothing."""

    def keep(self, rows: Any, at: Moment) -> list[bool]:
        """Keep all rows."""
        return [True] * rows.num_rows


def test_an_object_with_keep_is_an_evictor() -> None:
    """It prints as the name of its class, and the class is none."""
    own = All()
    assert isinstance(own, RowEvictor)
    assert checked_evictor(own) is own
    assert [evictor_words(evictor) for evictor in (own, KeepLast(3))] == ["All", "KeepLast(3)"]
    with pytest.raises(JobError, match="an object with keep"):
        checked_evictor(All)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda: KeepLast(0), id="no rows"),
        pytest.param(lambda: KeepLast(2.5), id="half a row"),
        pytest.param(lambda: KeepNewest(5), id="an int as a duration"),
        pytest.param(lambda: KeepNewest(seconds(0)), id="a duration of 0"),
        pytest.param(lambda: KeepDelta("v", 0), id="a threshold of 0"),
        pytest.param(lambda: KeepDelta("", 1), id="no expression"),
        pytest.param(lambda: checked_evictor(3), id="a number"),
        pytest.param(lambda: checked_evictor(KeepLast), id="a class"),
    ],
)
def test_what_does_not_fit_is_refused_at_the_users_line(wrong: Callable[[], object]) -> None:
    """A threshold of 0 would evict the last row itself."""
    with pytest.raises(JobError) as refused:
        wrong()
    assert __file__ in str(refused.value)
