"""Limits are given as a number, `none` or `default`, and said in words (SEMANTICS 8.5)."""

import pytest
import typer

from penstock.cli.limit_options import defaults_of, limits_given
from penstock.rates.limits import Limits, SourceLimits, limits_in_words


def test_each_limit_is_a_number_none_or_the_configurations():
    """What is not given is not touched."""
    given = limits_given(rows="5", bytes="2 MiB", files="7", max_rate="none", max_rate_per_partition="default")
    assert given["limits"] == Limits(rows=5, bytes=2 << 20, files=7, max_rate=None)
    assert given["unlimits"] == {"max_rate_per_partition"}
    assert limits_given(rows=None) == {"limits": Limits(), "unlimits": frozenset()}
    assert limits_given(paused=True)["limits"] == Limits(paused=True)
    assert limits_given(paused=False)["limits"] == Limits(paused=False)


def test_limits_may_be_of_one_source():
    """What is set, lifted and given back is of this one alone."""
    given = limits_given(source="orders", rows="5", bytes="none", files="default", max_rate=None)
    assert given["limits"] == Limits(sources={"orders": SourceLimits(rows=5, bytes=None)})
    assert given["unlimits"] == {"orders.files"}
    only_back = limits_given(source="orders", rows="default")
    assert (only_back["limits"], only_back["unlimits"]) == (Limits(), {"orders.rows"})
    assert defaults_of("orders")["unlimits"] >= {"orders.rows", "orders.max_rate_per_partition"}


@pytest.mark.parametrize("name", ["rows", "bytes", "files", "max_rate", "max_rate_per_partition"])
@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", ""])
def test_what_is_no_limit_is_refused_with_its_option(name, text):
    """Before anything is written."""
    with pytest.raises(typer.BadParameter, match="nor none or default") as refused:
        limits_given(**{name: text})
    assert refused.value.param_hint == f"--{name.replace('_', '-')}"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (None, "the limits of its configuration"),
        (Limits(rows=1_000), "at most 1,000 rows a batch and source"),
        (Limits(rows=1, max_rate=1), "at most 1 row a batch and source, at most 1 row a second and source"),
        (Limits(files=20), "at most 20 files a batch and source"),
        (Limits(rows=None), "no limit of rows a batch and source"),
        (Limits(max_rate=50, bytes=None), "at most 50 rows a second and source, no limit of bytes a batch and source"),
        (Limits(rows=5, paused=True), "paused, so it reads nothing"),
        (Limits(paused=False), "it reads again"),
        (
            Limits(rows=9, sources={"orders": SourceLimits(rows=1_000, max_rate=None)}),
            "at most 9 rows a batch and source; of orders at most 1,000 rows a batch, no limit of rows a second",
        ),
        (Limits(sources={"orders": SourceLimits(bytes=8)}), "of orders at most 8 bytes a batch"),
    ],
)
def test_limits_are_said_in_words(limits, words):
    """As the command answers."""
    assert limits_in_words(limits) == words
