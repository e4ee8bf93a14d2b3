"""Values of Avro become columns, and one that does not fit is an error of its own record."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.avro.columns import LOGICAL, column_of


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38), st.integers(0, 3))
def test_a_decimal_is_its_unscaled_number_in_bytes(unscaled: int, scale: int, padding: int) -> None:
    """Of as many bytes as it needs, or more."""
    size = unscaled.bit_length() // 8 + 1 + padding
    column = column_of({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}, "x", {})
    errors: list[str | None] = [None]
    made = column.made([unscaled.to_bytes(size, "big", signed=True)], errors)
    assert (made.to_pylist(), errors) == ([Decimal(unscaled).scaleb(-scale, None)], [None]) or (
        str(made[0].as_py()) == str(Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale)))
    )


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_values_that_do_not_fit_are_null_and_named(values: list[int | None]) -> None:
    """The others are as they would be alone."""
    errors: list[str | None] = [None] * len(values)
    made = column_of("int", "n", {}).made(values, errors)
    fits = [value is None or -(2**31) <= value < 2**31 for value in values]
    assert made.to_pylist() == [value if fit else None for value, fit in zip(values, fits, strict=True)]
    assert [error is None for error in errors] == fits


def test_the_first_error_of_a_record_stays() -> None:
    """One reason is enough."""
    errors: list[str | None] = ["before"]
    column_of("int", "n", {}).made([2**40], errors)
    assert errors == ["before"]


@pytest.mark.parametrize("name", sorted({str(name) for _, name in LOGICAL} - {"decimal"}))
def test_a_logical_type_of_another_type_is_read_as_that(name: str) -> None:
    """As the specification of Avro says of what makes no sense."""
    assert column_of({"type": "double", "logicalType": name}, "x", {}).kind == pa.float64()
