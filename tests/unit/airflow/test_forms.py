"""The fields of trigger forms: what Airflow takes of each, from a form and from a program (F63)."""

from __future__ import annotations

import pytest
from apart import run_apart

pytestmark = [pytest.mark.slow]

SCRIPT = r"""
import json, sys
from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowException
from penstock.airflow.forms import NAME, batch_param, count_param, exactly, batch_limits, job_param, note_param, words_param

def takes(param, *values):
    found = []
    for value in values:
        try:
            param.resolve(value)
            found.append(True)
        except (AirflowException, ValueError):
            found.append(False)
    return found

limits = batch_limits("keeps the limit")
words = words_param(f"{NAME}={NAME}", title="t", description="d")
print(json.dumps({
    "rows": takes(limits["rows"], None, 1, 10**12, 10**12 + 1, 10**30, 0, -1, "7", 1.5),
    "batch": takes(count_param("t", "d", least=0), None, 0, 10**12, -1, "7"),
    "decided": takes(batch_param("d"), 0, 10**12, 10**12 + 1, -1, None),
    "clamped": [sorted({"minimum", "maximum"} & param.schema.keys()) for param in (limits["rows"], batch_param("d"))],
    "size": takes(limits["bytes"], None, "", "1", "9" * 13, "64 MiB", "64MiB", "999999 TiB"),
    "no size": takes(limits["bytes"], 64, "0", "1000000 TiB", "9" * 14, "64 MB", "64  MiB", "64 MiB\n", "\u0661", "1.5 GiB"),
    "note": takes(note_param(), None, "", "why", "x" * 500, "x" * 501, 7),
    "words": takes(words, None, [], ["a=b"], ["a=b", ""], ["a=b\n"], ["a=../b"], "a=b", ["a=b"] * 51),
    "name": takes(Param(type="string", pattern=exactly(NAME)), "friday", "friday\n", "Friday", "", None),
    "job": takes(job_param(["orders"]), "orders", "orders\n", "other", None),
}))
"""


@pytest.fixture(scope="module")
def accepted(tmp_path_factory):
    """What each field takes."""
    return run_apart(SCRIPT, tmp_path_factory.mktemp("forms"))[1]


@pytest.mark.fault("F63")
def test_a_number_has_a_least_and_a_most(accepted):
    """One that is too large for Airflow's own messages failed every try with an empty log (review 17.17)."""
    assert accepted["rows"] == [True, True, True, *[False] * 6]
    assert accepted["batch"] == [True, True, True, False, False]
    assert accepted["decided"] == [True, True, False, False, False]


@pytest.mark.fault("F63")
def test_a_form_sends_the_number_that_was_typed(accepted):
    """Airflow's form moves a number to `minimum` or `maximum` unasked: 0 rows became 1, and batch -5 became 0."""
    assert accepted["clamped"] == [[], []]


@pytest.mark.fault("F63")
def test_a_text_is_matched_to_its_end(accepted):
    """A newline behind it is a character like any other (review 17.17)."""
    assert accepted["name"] == [True, False, False, False, False]
    assert accepted["job"] == [True, False, False, False]
    assert accepted["words"] == [True, True, True, True, False, False, False, False]


def test_a_size_is_a_number_of_bytes_or_has_a_unit(accepted):
    """As the command line takes it, and no larger than Airflow's messages do."""
    assert accepted["size"] == [True] * 7
    assert accepted["no size"] == [False] * 9


def test_what_may_stay_empty_takes_null(accepted):
    """Airflow's form sends null for an empty field (review 17.1)."""
    assert accepted["note"] == [True, True, True, True, False, False]
