"""Call a function of the user's with the rows of a window: `fn(key, view)` (SEMANTICS 3, 5.2, 6)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from penstock.errors import UnfitValue, WrongOutput, WrongWindowOutput
from penstock.graph.source_location import line_of
from penstock.graph.window_functions import WindowFunction, WindowView
from penstock.operators.columns import ddl_schema
from penstock.operators.functions.output_columns import checker, made_column, typed_table
from penstock.operators.functions.python_values import Unfit
from penstock.operators.functions.user_function import TaskInfo, UserFunction, task_facts
from penstock.operators.protocol import StepFacts

__all__ = ["WindowCalls", "WindowView", "output_schema"]


def output_schema(function: WindowFunction, step: str) -> pa.Schema:
    """Return the columns that a function over windows returns; raises BadExpression and JobError for unfit DDL."""
    return ddl_schema(function.output, f"output= of window {step!r}")


class WindowCalls:
    """The calls of a step's function in one batch and partition.

    Args:
        step: The name of the step.
        fn: `fn(key, view)`. An object may also have `open(info)`, `close()` and `on_expired(key, rows)`.
        output: The columns that it returns.
        facts: Those of the batch, for `open(info)`.
    """

    def __init__(self, step: str, fn: Any, output: pa.Schema, facts: StepFacts) -> None:
        self._label = f"window {step!r}"
        self._user = UserFunction(self._label, fn)
        self._output = output
        self._facts = facts
        self._names = set(output.names)
        self._check = checker(output, f"what {self._label} returned")
        self._nothing = output.empty_table()

    def opened(self) -> AbstractContextManager[None]:
        """Return what opens the function and closes it, around all calls of the batch."""
        return self._user.opened(TaskInfo(**task_facts(self._facts)))

    def call(self, key: Any, view: WindowView) -> pa.Table:
        """Return the rows that the function makes of a window, with the columns of the output.

        Args:
            key: The key as `python_values.key_values` gives it.
            view: The window.

        Raises:
            UserFunctionError: The function raises.
            WrongWindowOutput: The function returns what does not fit the output.
            UnfitValue: The key is a value that Python cannot hold.
        """
        self._refuse_unfit(key)
        try:
            returned = self._user.fn(key, view)
        except Exception as why:
            raise self._user.blamed(why, f"key {key!r}, window of {view.start} to {view.end}") from why
        if returned is None:
            return self._nothing
        try:
            if isinstance(returned, list | tuple):
                return self._from_rows(returned, key)
            return typed_table(returned, self._output, f"what {self._label} returned for key {key!r}")
        except WrongOutput as why:
            raise WrongWindowOutput(why.what, where=line_of(self._user.fn)) from None

    def tell_expired(self, key: Any, rows: pa.Table) -> None:
        """Call `on_expired(key, rows)` of an object that has it; raises UserFunctionError for what it raises."""
        if self.hears_expired:
            self._refuse_unfit(key)
            self._user.notify("on_expired", key, rows, during=f"on_expired of key {key!r}")

    @property
    def hears_expired(self) -> bool:
        """Return whether the function is an object with `on_expired`."""
        return callable(getattr(self._user.fn, "on_expired", None))

    def _from_rows(self, rows: list[Any] | tuple[Any, ...], key: Any) -> pa.Table:
        """Return rows that are dicts as a table; raises WrongOutput for the first that does not fit."""
        for row in rows:
            if not isinstance(row, Mapping) or row.keys() != self._names:
                shape = f"a row with the columns {[*row]}" if isinstance(row, Mapping) else f"a {type(row).__name__}"
                raise WrongOutput(f"{self._label} returned {shape} for key {key!r}, not a dict of {self._output.names}")
            self._check(row, key)
        label = f"what {self._label} returned for key {key!r}"
        columns = [made_column([row[field.name] for row in rows], field, label) for field in self._output]
        return pa.table(columns, schema=self._output)

    def _refuse_unfit(self, key: Any) -> None:
        if isinstance(key, Unfit):
            raise UnfitValue(
                f"{self._label}: column {key.column!r} of a key is {key.shown}, which no Python object holds"
            )
