"""State functions that cannot be, or do wrong, are refused with the user's line (SEMANTICS 7)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_state_functions_in_jobs import count, job_of, row

from penstock import seconds
from penstock.errors import BadExpression, JobError, UnboundedState, UnknownName, UserFunctionError, WrongOutput
from penstock.state import event_time, idle
from penstock.testing import Harness

pytestmark = pytest.mark.sample(5, of="state functions")


def test_7_7_state_that_nothing_bounds_is_refused(tmp_path):
    """Until somebody says that it may grow."""
    with pytest.raises(UnboundedState, match="nothing bounds the state of step 'step'"):
        job_of(count)


WRONG = {
    "raises": (
        lambda t, k, r, s: 1 / 0,
        UserFunctionError,
        "step 'step': ZeroDivisionError: division by zero (key 'a')",
    ),
    "misuses": (lambda t, k, r, s: s.get(), UserFunctionError, "the key has no state"),
    "returns": (
        lambda t, k, r, s: {"k": k, "n": 1.5},
        WrongOutput,
        "column 'n' of what step 'step' emitted is int64 and got a float for key 'a': 1.5",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_function_that_does_wrong_is_named_with_line_and_key(tmp_path, what):
    """Nothing of the batch is committed, and the same batch is run again."""
    fn, kind, message = WRONG[what]
    with pytest.raises(kind) as raised, Harness(job_of(fn, unbounded=True), tmp_path) as h:
        h.batch({"rows": [row("a", 1)]})
    assert message in str(raised.value)
    if kind is UserFunctionError:
        assert "test_refused_state_functions.py:" in str(raised.value)


UNFIT = {
    "a type for a schema": ({"state": "long"}, BadExpression, "state= of step 'step' is 'long', one type"),
    "no DDL": ({"state": "n lng"}, BadExpression, "LNG"),
    "a key among the state": ({"state": "k string"}, JobError, "has a column 'k', which is a key's name"),
    "a column of the engine": ({"state": "_expires long"}, JobError, "Penstock's own"),
    "a deadline without event time": ({"timeout": event_time(), "event": False}, JobError, "source 'rows' has none"),
    "a vectorised deadline": (
        {"timeout": event_time(), "form": "map_with_state_arrow"},
        JobError,
        "nothing sets a deadline there",
    ),
    "two columns of a name": ({"output": "n long, N long"}, JobError, "output= of step 'step' has two columns 'n'"),
    "a number for a timeout": ({"timeout": 5}, JobError, "write idle(minutes(5))"),
    "an unknown value": (
        {"form": "update_state_by_key", "value": "w"},
        UnknownName,
        "reads the column 'w'; the stream has ['k', 't', 'v']",
    ),
}


@pytest.mark.parametrize("what", UNFIT)
def test_a_step_that_cannot_be_is_refused_when_it_is_built(tmp_path, what):
    """With the user's line, before there is a checkpoint."""
    more, kind, message = UNFIT[what]
    bound = {} if "timeout" in more or more.get("form") == "update_state_by_key" else {"unbounded": True}
    with pytest.raises(kind) as raised, Harness(job_of(count, **bound, **more), tmp_path / "root"):
        pass
    assert message in str(raised.value)
    assert "test_state_functions_in_jobs.py:" in str(raised.value.where)
    assert not (tmp_path / "root" / "stateful" / "log").exists()


@pytest.mark.parametrize(
    "initial",
    ["hdfs:/totals", "file:/totals", Path("webhdfs://nn:9870/totals"), Path("/p/webhdfs:/nn/totals")],
    ids=str,
)
def test_initial_state_at_a_url_with_one_slash_is_refused(initial):
    """It was the path of a local folder; `Path` makes one slash of the two of a URL."""
    with pytest.raises(JobError, match="one slash") as raised:
        job_of(count, unbounded=True, initial=initial)
    assert "test_state_functions_in_jobs.py:" in str(raised.value.where)


def test_two_idle_timeouts_are_refused():
    """One of them would be silently the other."""
    with pytest.raises(JobError, match="this has two"):
        idle(seconds(1)) | idle(seconds(2))


def test_the_line_of_an_error_is_that_of_the_function(tmp_path):
    """Not that of a library in which it came up."""
    job = job_of(lambda t, k, r, s: json.loads("{"), unbounded=True)
    message = r"JSONDecodeError: .* \(key 'a'\) in .*test_refused_state_functions.py:\d+"
    with pytest.raises(UserFunctionError, match=message), Harness(job, tmp_path) as h:
        h.batch({"rows": [row("a", 1)]})
