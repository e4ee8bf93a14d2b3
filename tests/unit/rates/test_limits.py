"""Hard limits lie over one another: what was set counts, and None there means no limit (SEMANTICS 8.5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.rates.limits import Limits, SourceLimits

OF_ONE = {
    "rows": st.none() | st.integers(1, 9),
    "bytes": st.none() | st.integers(1, 9),
    "files": st.none() | st.integers(1, 9),
    "max_rate": st.none() | st.floats(0.1, 9),
    "max_rate_per_partition": st.none() | st.integers(1, 9),
}
LIMITS = st.fixed_dictionaries({}, optional={**OF_ONE, "paused": st.booleans()})
OF_SOURCES = st.dictionaries(st.sampled_from("ab"), st.fixed_dictionaries({}, optional=OF_ONE).filter(bool), min_size=1)
WITH_SOURCES = st.builds(
    lambda of_each, sources: {**of_each, **({"sources": sources} if sources else {})}, LIMITS, st.just({}) | OF_SOURCES
)


def made(values: dict) -> Limits:
    """Return limits, of single sources as well."""
    own = {name: SourceLimits(**of) for name, of in values.get("sources", {}).items()}
    return Limits(**{**values, **({"sources": own} if own else {})})


@given(first=LIMITS, second=LIMITS, third=LIMITS)
def test_the_upper_limits_go_first_one_by_one(first, second, third):
    """As dictionaries would be joined, in any grouping."""
    a, b, c = Limits(**first), Limits(**second), Limits(**third)
    assert a.over(b).set_limits() == {**second, **first}
    assert a.over(b).over(c) == a.over(b.over(c))


@given(first=WITH_SOURCES, second=WITH_SOURCES, third=WITH_SOURCES)
def test_limits_of_single_sources_are_joined_likewise(first, second, third):
    """Source by source and limit by limit; what is set for one holds in place of what is set for each."""
    a, b, c = made(first), made(second), made(third)
    joined = a.joined(b)
    assert joined.joined(c) == a.joined(b.joined(c))
    for source in "abc":
        own = {**second.get("sources", {}).get(source, {}), **first.get("sources", {}).get(source, {})}
        each = {**second, **first}
        wanted = {name: own[name] if name in own else each.get(name) for name in OF_ONE}
        assert {name: getattr(joined.of(source), name) for name in OF_ONE} == wanted
    assert set(joined.sources) == {*second.get("sources", {}), *first.get("sources", {})}


@given(first=WITH_SOURCES, second=WITH_SOURCES, third=WITH_SOURCES)
def test_what_an_operator_sets_for_each_source_holds_for_each(first, second, third):
    """Also for those of which the configuration below says something else; the nearest word of one layer wins."""
    a, b, c = made(first), made(second), made(third)
    assert a.over(b).over(c) == a.over(b.over(c))
    for source in "abc":
        above, below = a.of(source), b.of(source)
        said = {*first, *first.get("sources", {}).get(source, {})}
        wanted = {name: getattr(above if name in said else below, name) for name in OF_ONE}
        assert {name: getattr(a.over(b).of(source), name) for name in OF_ONE} == wanted


@given(values=WITH_SOURCES)
def test_a_record_has_what_was_set_and_nothing_else(values):
    """No limit is stored as null, and what nobody set is not stored."""
    limits = made(values)
    assert limits.model_dump(mode="json") == values == limits.set_limits()
    assert Limits.model_validate_json(limits.model_dump_json()) == limits
    assert hash(made(values)) == hash(limits)
    assert Limits.recorded({**values, "rate": 5.5, "bound": {"a": "rows"}}) == limits


@pytest.mark.fault("F77")
def test_what_a_newer_driver_records_is_passed_over():
    """One that knows more limits, or says otherwise of which sources."""
    assert Limits.recorded({"rows": 5, "sources": {"a": {"rows": 1, "later": 2}}}) == made(
        {"rows": 5, "sources": {"a": {"rows": 1}}}
    )
    assert Limits.recorded({"rows": 5, "sources": 7}) == Limits(rows=5)


@given(values=LIMITS)
def test_a_limit_can_be_taken_back(values):
    """Then those below it hold again."""
    below = Limits(rows=5, max_rate=7)
    joined = Limits(**values).without(frozenset({"rows", "max_rate"})).over(below)
    assert (joined.rows, joined.max_rate) == (5, 7)


def test_a_limit_of_one_source_can_be_taken_back():
    """By its name behind that of the source; limits of each are others."""
    limits = made({"rows": 9, "sources": {"a": {"rows": 1, "bytes": 2}, "b": {"rows": 3}}})
    left = limits.without(frozenset({"a.rows", "b.rows"}))
    assert left.set_limits() == {"rows": 9, "sources": {"a": {"bytes": 2}}}
    assert left.without(frozenset({"a.bytes", "rows"})) == Limits()
    assert limits.without(frozenset({"rows"})).sources == limits.sources


def test_a_pause_is_of_no_single_source():
    """A source that is held back for itself would hold back the watermark of all."""
    with pytest.raises(ValidationError):
        SourceLimits(paused=True)


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
