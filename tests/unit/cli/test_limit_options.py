"""Limits are given as a number, `none` or `default`, and said in words (SEMANTICS 8.5)."""

import pytest
import typer

from penstock.cli.limit_options import limits_given, limits_in_words
from penstock.rates.limits import Limits


def test_each_limit_is_a_number_none_or_the_configurations():
    """What is not given is not touched."""
    given = limits_given(rows="5", bytes="2 MiB", files="7", max_rate="none", max_rate_per_partition="default")
    assert given["limits"] == Limits(rows=5, bytes=2 << 20, files=7, max_rate=None)
    assert given["unlimits"] == {"max_rate_per_partition"}
    assert limits_given(rows=None) == {"limits": Limits(), "unlimits": frozenset()}
    assert limits_given(paused=True)["limits"] == Limits(paused=True)
    assert limits_given(paused=False)["limits"] == Limits(paused=False)


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
        (Limits(files=20), "at most 20 files a batch and source"),
        (Limits(rows=None), "no limit of rows a batch and source"),
        (Limits(max_rate=50, bytes=None), "at most 50 rows a second and source, no limit of bytes a batch and source"),
        (Limits(rows=5, paused=True), "paused, so it reads nothing"),
        (Limits(paused=False), "it reads again"),
    ],
)
def test_limits_are_said_in_words(limits, words):
    """As the command answers."""
    assert limits_in_words(limits) == words
