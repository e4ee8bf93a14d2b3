"""What steps with functions of the user's declare is checked where the job is built."""

from __future__ import annotations

import re

import pytest

from penstock.errors import BadExpression, JobError
from penstock.graph.declarations import checked_function, checked_text, function_name


class Callable:
    """An object that can be called."""

    def __call__(self) -> None:
        """Do nothing."""


def test_a_text_and_a_function_pass_as_they_are() -> None:
    """Also an object that can be called, which `explain` names by its class."""
    fn = Callable()
    assert checked_text("n long", "output", "step 's'") == "n long"
    assert checked_function(fn, "step 's'") is fn
    assert [function_name(fn), function_name(checked_text)] == ["Callable", "checked_text"]


@pytest.mark.parametrize("text", [None, "", "  ", 3], ids=["nothing", "empty", "blank", "number"])
def test_what_is_no_text_is_refused_at_the_users_line(text: object) -> None:
    """The error names the argument, the step and what was given."""
    with pytest.raises(BadExpression, match=re.escape(f"output= of step 's' is {text!r}, not a text")) as why:
        checked_text(text, "output", "step 's'")
    assert "test_declarations.py:" in str(why.value)


def test_what_cannot_be_called_is_refused_at_the_users_line() -> None:
    """The error names the step and what was given."""
    with pytest.raises(JobError, match="step 's' needs a function, not 3.*test_declarations.py:"):
        checked_function(3, "step 's'")
