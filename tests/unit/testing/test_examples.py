"""A long run tries more examples of each property."""

from __future__ import annotations

import pytest

from penstock.testing.examples import examples


@pytest.mark.parametrize(("factor", "expected"), [("1", 10), ("20", 200)])
def test_a_variable_multiplies_the_examples(monkeypatch: pytest.MonkeyPatch, factor: str, expected: int) -> None:
    """That of `make soak`; without it there are as many as the test says."""
    monkeypatch.setenv("PENSTOCK_EXAMPLES", factor)
    assert examples(10) == expected
    monkeypatch.delenv("PENSTOCK_EXAMPLES")
    assert examples(10) == 10
