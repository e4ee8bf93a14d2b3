"""Hard limits lie over one another: what was set counts, and None there means no limit (SEMANTICS 8.5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.rates.limits import Limits

LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "rows": st.none() | st.integers(1, 9),
        "bytes": st.none() | st.integers(1, 9),
        "files": st.none() | st.integers(1, 9),
        "max_rate": st.none() | st.floats(0.1, 9),
        "max_rate_per_partition": st.none() | st.integers(1, 9),
        "paused": st.booleans(),
    },
)


@given(first=LIMITS, second=LIMITS, third=LIMITS)
def test_the_upper_limits_go_first_one_by_one(first, second, third):
    """As dictionaries would be joined, in any grouping."""
    a, b, c = Limits(**first), Limits(**second), Limits(**third)
    assert a.over(b).set_limits() == {**second, **first}
    assert a.over(b).over(c) == a.over(b.over(c))


@given(values=LIMITS)
def test_a_record_has_what_was_set_and_nothing_else(values):
    """No limit is stored as null, and what nobody set is not stored."""
    limits = Limits(**values)
    assert limits.model_dump(mode="json") == values
    assert Limits.model_validate(limits.model_dump(mode="json")) == limits
    assert hash(Limits.model_validate(values)) == hash(limits)


@given(values=LIMITS)
def test_a_limit_can_be_taken_back(values):
    """Then those below it hold again."""
    below = Limits(rows=5, max_rate=7)
    joined = Limits(**values).without(frozenset({"rows", "max_rate"})).over(below)
    assert (joined.rows, joined.max_rate) == (5, 7)


def test_no_limit_and_nothing_said_are_two_things():
    """A person lifts the limit of the configuration by the one, and leaves it by the other."""
    assert Limits(rows=None) != Limits()
    assert Limits(rows=None).over(Limits(rows=3)).rows is None
    assert Limits().over(Limits(rows=3)).rows == 3


@pytest.mark.parametrize(
    "values", [{"rows": 0}, {"bytes": -1}, {"max_rate": 0}, {"files": 0}, {"max_rate_per_partition": -0.5}, {"file": 3}]
)
def test_a_limit_of_nothing_is_refused(values):
    """To read nothing is a pause, which says so."""
    with pytest.raises(ValidationError):
        Limits(**values)
