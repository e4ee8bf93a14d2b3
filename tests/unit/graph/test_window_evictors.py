"""What evictors take (SEMANTICS 6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import count, seconds
from penstock.errors import JobError
from penstock.evictors import KeepDelta, KeepLast, KeepNewest
from penstock.graph.window_evictors import checked_evictor


def test_an_evictor_prints_as_the_job_writes_it() -> None:
    """`count(3)` is a number of rows too."""
    evictors = (KeepLast(count(3)), KeepNewest(seconds(5)), KeepDelta("v", 2))
    assert [str(evictor) for evictor in evictors] == ["KeepLast(3)", "KeepNewest(5 s)", "KeepDelta('v', 2)"]
    assert [checked_evictor(evictor) for evictor in evictors] == [*evictors]


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
