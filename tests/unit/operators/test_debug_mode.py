"""`operators/debug_mode.py`: the debug mode of a batch, and values that are alike."""

from __future__ import annotations

import pytest

from penstock.operators.debug_mode import alike, debugging, is_debugging


def test_the_mode_ends_with_its_block():
    """Also inside another, and after an error."""
    assert not is_debugging()
    with debugging(on=True):
        with debugging(on=False):
            assert not is_debugging()
        with pytest.raises(ValueError, match="x"), debugging(on=False):
            int("x")
        assert is_debugging()
    assert not is_debugging()


@pytest.mark.parametrize(
    ("value", "other", "is_alike"),
    [
        (0.1 + 0.2, 0.3, True),
        (1.0, 1.1, False),
        (float("nan"), float("nan"), True),
        ({"n": 1, "total": 0.1 + 0.2}, {"n": 1, "total": 0.3}, True),
        ({"n": 1}, {"m": 1}, False),
        ([1, [0.1 + 0.2]], [1, [0.3]], True),
        ([1, 2], [1], False),
        ("ab", "ab", True),
        ("ab", ["a", "b"], False),
        (None, 0, False),
    ],
    ids=["floats", "other floats", "nan", "dicts", "other names", "lists", "lengths", "texts", "a text", "null"],
)
def test_values_are_alike_but_for_what_floats_lose(value, other, is_alike):
    """Sums of the same floats in another order are, other numbers are not."""
    assert alike(value, other) is is_alike
