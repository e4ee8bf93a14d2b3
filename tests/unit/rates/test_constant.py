"""The estimator that always gives one rate."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.rates import Constant


@pytest.mark.parametrize("batch", [(0, 10, 10, 0), (0, 0, 0, 0), (-5, 10, 0, 99)], ids=str)
def test_it_is_the_rate_whatever_a_batch_was(batch: tuple[int, int, int, int]) -> None:
    """Also for a batch without rows."""
    assert Constant(250).compute(*batch) == 250


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")], ids=str)
def test_a_rate_is_above_zero(rate: float) -> None:
    """To read nothing one pauses a stream; a rate of zero is a mistake."""
    with pytest.raises(ConfigError, match="rate is "):
        Constant(rate)
