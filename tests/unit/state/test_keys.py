"""Keys of the state: their partition, and when two of them are the same (DESIGN 6, SEMANTICS 3.4)."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WrongPartition
from penstock.state.keys import canonical, check_partition, equal_at, equal_keys, partition_of, places_in_range

INT64 = st.integers(-(2**63), 2**63 - 1)
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]

KINDS = {
    "int64": (pa.int64(), INT64),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "double": (pa.float64(), st.floats() | st.just(OTHER_NAN)),
    "float": (pa.float32(), st.floats(width=32)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=3)),
    "large_string": (pa.large_string(), st.text(max_size=3)),
    "binary": (pa.binary(), st.binary(max_size=3)),
    "decimal": (pa.decimal128(12, 2), st.decimals(-99, 99, places=2, allow_nan=False)),
    "date": (pa.date32(), st.dates(dt.date(1960, 1, 1), dt.date(2040, 1, 1))),
    "timestamp": (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    "list": (pa.list_(pa.float64()), st.lists(st.floats() | st.none(), max_size=2)),
    "struct": (
        pa.struct([("a", pa.float64()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": st.floats() | st.none(), "b": st.text(max_size=1) | st.none()}),
    ),
    "null": (pa.null(), st.none()),
}


def model_equal(value, other):
    """Say whether two Python values are one key: nulls are equal, NaN equals NaN."""
    if isinstance(value, float) and isinstance(other, float):
        return value == other or (math.isnan(value) and math.isnan(other))
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(model_equal, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return all(model_equal(value[name], other[name]) for name in value)
    return value == other


@given(st.lists(INT64, max_size=20), st.integers(1, 1_000))
def test_the_partition_is_the_positive_remainder_of_the_hash(hashes, partitions):
    """As Spark's pmod: negative hashes have partitions too."""
    placed = partition_of(np.array(hashes, dtype=np.int64), partitions)
    assert placed.dtype == np.int64
    assert placed.tolist() == [value % partitions for value in hashes]


def test_rows_of_another_partition_are_refused_with_their_number():
    """A task checks that the rows it got are its own (DESIGN 6)."""
    hashes = np.array([0, 8, -8, 1], dtype=np.int64)
    check_partition(hashes[:3], 0, 8, step="hourly")
    with pytest.raises(WrongPartition, match=r"1 of 4 rows of step 'hourly'") as caught:
        check_partition(hashes, 0, 8, step="hourly")
    assert caught.value.partition == 0


@pytest.mark.sample(6)
@pytest.mark.fault("F43")
@pytest.mark.parametrize("kind", KINDS)
def test_equality_is_that_of_the_values_with_nulls_and_nan_equal_to_themselves(kind):
    """For every type a key may have, sliced arrays included."""
    arrow, values = KINDS[kind]

    @given(st.lists(st.tuples(values | st.none(), values | st.none()), max_size=12), st.booleans())
    def holds(pairs, repeated):
        left = [first for first, _ in pairs]
        right = [first if repeated and place % 2 else other for place, (first, other) in enumerate(pairs)]
        padded = [pa.array([None, *side, None], arrow).slice(1, len(pairs)) for side in (left, right)]
        at = np.arange(len(pairs), dtype=np.int64)[::-1].copy()
        expected = [model_equal(a, b) for a, b in zip(*(p.to_pylist() for p in padded), strict=True)]
        assert equal_at(padded[0], at, padded[1], at).tolist() == expected[::-1]

    holds()


def test_keys_are_equal_when_all_columns_are():
    """A key of several columns; without columns, all rows are of one key."""
    left = [pa.array([1, 1, 2]), pa.array(["a", None, "a"])]
    right = [pa.array([1, 1, 2]), pa.array(["a", None, "b"])]
    rows = np.arange(3, dtype=np.int64)
    assert equal_keys(left, rows, right, rows).tolist() == [True, True, False]
    assert equal_keys([], rows, [], rows).tolist() == [True, True, True]


def test_a_key_of_another_type_is_refused():
    """It would hash differently, so no row would ever be found."""
    row = np.zeros(1, dtype=np.int64)
    with pytest.raises(TypeError, match="int32 in the state and int64 in the batch"):
        equal_at(pa.array([1], pa.int32()), row, pa.array([1], pa.int64()), row)


@given(st.recursive(st.floats() | st.integers() | st.none(), lambda inner: st.lists(inner, max_size=3), max_leaves=6))
def test_canonical_values_can_be_hashed_and_are_equal_to_themselves(value):
    """Also NaN, which in Python is not equal to itself."""
    assert canonical(value) == canonical(value)
    assert hash(canonical(value)) == hash(canonical(value))


def test_canonical_values_of_decimals_that_are_equal_are_equal():
    """Whatever their scale."""
    assert canonical({"a": decimal.Decimal("1.0")}) == canonical({"a": decimal.Decimal("1.00")})


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([5, 6, 5, 5]), ([0, 1, 0, 0], 5, 2)),
        (pa.array([-128, 127] * 256, pa.int8()), ([0, 255] * 256, -128, 256)),
        (pa.array([2**63 - 1] * 2), ([0, 0], 2**63 - 1, 1)),
        (pa.array([5, 7, 5, 5]), None),
        (pa.array([-(2**63), 2**63 - 1] * 9), None),
        (pa.array([5, None, 5, 5]), None),
        (pa.array([5.0] * 9), None),
        (pa.array([], pa.int64()), None),
    ],
    ids=str,
)
def test_whole_numbers_have_places_where_their_range_is_small(column, expected):
    """DESIGN 6: a range of so many numbers at most, without nulls, up to the type's ends."""
    ranged = places_in_range(column, len(column) // 2)
    assert (ranged and (ranged[0].tolist(), *ranged[1:])) == expected
