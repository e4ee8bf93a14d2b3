"""Numbers, sizes and durations as people read them."""

from __future__ import annotations

import pytest

from penstock.ui.formatting import counted, number, quantity, size, span

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "under a second"),
        (SECOND - 1, "under a second"),
        (SECOND, "1 second"),
        (59 * SECOND, "59 seconds"),
        (MINUTE, "1 minute"),
        (2 * MINUTE + 5 * SECOND, "2 minutes 5 seconds"),
        (HOUR + 59 * SECOND, "1 hour"),
        (HOUR + 4 * MINUTE, "1 hour 4 minutes"),
        (3 * DAY + 2 * HOUR, "3 days 2 hours"),
        (4_000 * DAY, "10 years 350 days"),
        (-5 * SECOND, "5 seconds ahead"),
    ],
)
def test_a_duration_is_said_in_its_two_largest_units(micros, text):
    """What is smaller does not matter to who reads it; a clock that is ahead is no error."""
    assert span(micros) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1_234_567, "1,234,567"), (1.25, "1.2"), (1234.5, "1,234"), (9, "9")]
)
def test_a_number_has_separators(value, text):
    """And a fraction only where it is small."""
    assert number(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1_023, "1,023 bytes"), (1_024, "1.0 KiB"), (5 * 2**20, "5.0 MiB"), (2**60, "1,048,576.0 TiB")],
)
def test_a_size_has_the_unit_that_fits(count, text):
    """Up to the largest one."""
    assert size(count) == text


def test_counts_are_told_with_their_names():
    """One batch, two batches; three passed, one failed."""
    assert [quantity(1, "batch"), quantity(2_000, "batch"), quantity(0, "row")] == [
        "1 batch",
        "2,000 batches",
        "0 rows",
    ]
    assert counted({"passed": 3_000, "failed": 1}) == "3,000 passed, 1 failed"
