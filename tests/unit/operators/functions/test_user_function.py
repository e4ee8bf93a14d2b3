"""A function of the user's is opened and closed around its calls, and blamed at its own line."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from penstock.errors import UserFunctionError
from penstock.operators.functions.user_function import TaskInfo, UserFunction, task_facts
from penstock.operators.protocol import StepFacts

INFO = TaskInfo(batch=3, time=datetime(2026, 1, 1, tzinfo=UTC), watermark=None, epoch=2)


class Opened:
    """A function object that notes what is called, and raises in the methods named."""

    def __init__(self, *wrong: str) -> None:
        self.wrong = wrong
        self.notes: list[str] = []

    def _note(self, method: str) -> None:
        self.notes.append(method)
        if method in self.wrong:
            json.loads("{")

    def open(self, info: TaskInfo) -> None:
        self._note(f"open {info.batch}")

    def close(self) -> None:
        self._note("close")

    def __call__(self) -> None:
        self._note("call")


def test_an_object_is_opened_and_closed_once() -> None:
    """Around whatever comes between; a plain function needs neither, nor an object whose `open` is no method."""
    fn = Opened()
    with UserFunction("step 's'", fn).opened(INFO):
        fn()
    assert fn.notes == ["open 3", "call", "close"]
    with UserFunction("step 's'", json.loads).opened(INFO):
        pass


def test_the_first_error_is_the_cause_and_close_is_called_all_the_same() -> None:
    """What `close` raises after it says nothing more."""
    fn = Opened("close")
    with pytest.raises(KeyError), UserFunction("step 's'", fn).opened(INFO):
        raise KeyError
    assert fn.notes[-1] == "close"
    with pytest.raises(UserFunctionError, match=r"step 's': JSONDecodeError: .* \(close\) in"):  # noqa: SIM117 - the inner one raises
        with UserFunction("step 's'", fn).opened(INFO):
            pass


def test_blame_names_the_line_of_the_users_file_though_a_library_raised() -> None:
    """Also where the function is a partial."""
    fn = partial(Opened("call"))
    with pytest.raises(ValueError, match="Expecting") as raised:
        fn()
    blamed = UserFunction("step 's'", fn).blamed(raised.value, "key 7")
    assert blamed.what.startswith("step 's': JSONDecodeError: ")
    assert f" (key 7) in {Path(__file__)}:" in blamed.what


def test_open_gets_the_moments_of_the_batch_as_aware_datetimes() -> None:
    """And no watermark before there is one."""
    facts = StepFacts(batch=3, time=1_767_225_600_000_000, watermark=None, epoch=2)
    assert TaskInfo(**task_facts(facts)) == INFO
