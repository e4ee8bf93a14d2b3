"""What a benchmark says of values that are to stay flat."""

from __future__ import annotations

import pytest

from benchmarks.report import Trend


@pytest.mark.parametrize(
    ("values", "word", "surely"),
    [
        pytest.param([7.0] * 10, "flat", 0.0, id="always the same"),
        pytest.param([100.0, 104.0, 97.0, 103.0, 98.0, 101.0, 99.0, 102.0], "flat", 0.0, id="noise"),
        pytest.param([100.0 + 2 * n for n in range(11)], "grows", 100 * 20 / 110, id="a line"),
        pytest.param([100.0 - 2 * n for n in range(11)], "falls", 0.0, id="down"),
        pytest.param([0.0] * 5, "flat", 0.0, id="nothing there"),
    ],
)
def test_a_trend_is_told_from_noise(values: list[float], word: str, surely: float) -> None:
    """By two standard errors of the line through them."""
    trend = Trend.of(values)
    assert str(trend).startswith(word)
    assert trend.surely == pytest.approx(surely)
