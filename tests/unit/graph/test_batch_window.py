"""Windows of batch time as values (SEMANTICS 4.1)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import minutes, seconds
from penstock.errors import JobError
from penstock.graph.batch_window import BatchWindow


@pytest.mark.parametrize("length", [seconds(0), seconds(-1), 4, None, "4 s"], ids=repr)
def test_a_length_or_slide_that_is_none_is_refused(length: Any) -> None:
    """4.1: both have a unit and are above 0; only the slide may be left out."""
    with pytest.raises(JobError, match="length"):
        BatchWindow(length)
    if length is not None:
        with pytest.raises(JobError, match="slide"):
            BatchWindow(seconds(4), slide=length)


def test_a_window_is_known_by_its_numbers() -> None:
    """Two of equal length and slide are equal, and say so in words."""
    assert BatchWindow(minutes(1), slide=seconds(2)) == BatchWindow(seconds(60), slide=seconds(2))
    assert str(BatchWindow(seconds(60), slide=seconds(2))) == "1 min of batch time every 2 s"
    assert str(BatchWindow(seconds(4))) == "4 s of batch time every batch"
