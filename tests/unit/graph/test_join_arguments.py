"""What joins of two streams accept as arguments (SEMANTICS 7.6)."""

from __future__ import annotations

import pytest

from penstock.errors import JobError
from penstock.graph.join_arguments import JoinKind, checked_kind


def test_a_kind_is_one_of_those_that_a_join_has() -> None:
    """By its word; another is refused with those that there are."""
    assert checked_kind("left", *JoinKind, what="join 'a'") is JoinKind.LEFT
    for how in ("outer", None, "LEFT"):
        with pytest.raises(JobError, match="how= of join 'a' is .*; write 'inner' or 'left'"):
            checked_kind(how, *JoinKind, what="join 'a'")
    with pytest.raises(JobError, match="write 'inner'"):
        checked_kind("left", JoinKind.INNER, what="join 'a'")
