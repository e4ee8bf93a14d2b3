"""Which columns state may have been written with, for a step to go on from it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.operators.schema_evolution import Evolution, evolve, widens

KEYS = pa.schema([("a", pa.string()), ("b", pa.string())])
STATE = pa.schema([("n", pa.int32())])


def test_the_same_columns_are_no_change() -> None:
    """Neither refused nor told."""
    assert evolve(KEYS, KEYS, STATE, STATE) == Evolution()


@pytest.mark.fault("F51")
@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (pa.schema([KEYS.field("b"), KEYS.field("a")]), "the keys were a, b and are b, a, in another order"),
        (pa.schema([KEYS.field("a")]), "key column b was string and is none"),
        (pa.schema([*KEYS, ("c", pa.int64())]), "key column c was none and is int64"),
        (pa.schema([("a", pa.int64()), KEYS.field("b")]), "key column a was string and is int64"),
    ],
)
def test_other_keys_are_refused(keys: pa.Schema, reason: str) -> None:
    """Also the same in another order: no key would be found under its hash, and each would begin anew."""
    assert evolve(KEYS, keys, STATE, STATE) == Evolution(refused=(reason,))


def test_a_column_may_be_new_wider_and_elsewhere_but_not_gone_or_narrower() -> None:
    """What is refused leaves nothing accepted."""
    wider = pa.schema([("m", pa.string()), ("n", pa.int64())])
    widened = evolve(KEYS, KEYS, STATE, wider)
    assert (widened.refused, len(widened.accepted)) == ((), 2)
    back = evolve(KEYS, KEYS, wider, STATE)
    assert (len(back.refused), back.accepted) == (2, ())


def test_every_value_of_the_old_type_must_have_one_of_the_new() -> None:
    """A whole number of 64 bits has no double."""
    assert widens(pa.int32(), pa.float64())
    assert not widens(pa.int64(), pa.float64())
    assert widens(pa.decimal128(10, 2), pa.decimal128(12, 3))
    assert not widens(pa.decimal128(10, 2), pa.decimal128(10, 3))
