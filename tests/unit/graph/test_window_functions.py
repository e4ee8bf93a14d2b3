"""A function over windows is checked where the job is built, and users can name what it gets."""

from __future__ import annotations

import pytest

from penstock.errors import BadExpression, JobError
from penstock.graph.window_functions import WindowFunction, WindowView, window_function
from penstock.windows import WindowView as OfUsers


def first_rows(key: object, view: WindowView) -> None:
    """Return nothing."""


def test_explain_names_the_function() -> None:
    """By its qualified name; what `apply` was given is kept."""
    function = window_function(first_rows, "n long", "window 'w'")
    assert function == WindowFunction(first_rows, "n long")
    assert str(function) == "first_rows"


def test_a_missing_function_or_output_is_refused_at_the_users_line() -> None:
    """Each with its own error."""
    with pytest.raises(JobError, match="window 'w' needs a function, not None.*test_window_functions.py:"):
        window_function(None, "n long", "window 'w'")
    with pytest.raises(BadExpression, match="output= of window 'w' is None, not a text"):
        window_function(first_rows, None, "window 'w'")


def test_type_hints_find_the_view_beside_the_windows() -> None:
    """`from penstock.windows import WindowView`; what only some windows have is None in the others."""
    view = OfUsers(start=None, end=None, current=None)  # type: ignore[arg-type]
    assert OfUsers is WindowView
    assert (view.new, view.expired) == (None, None)
