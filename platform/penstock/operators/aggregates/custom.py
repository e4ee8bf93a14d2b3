"""Aggregate by functions of the user's: a state for each group, which Python values are added to (SEMANTICS 3.3).

A null partial stands for `zero`, so a group without values costs no call. Functions see plain Python values, and each
value of `zero` is a copy of its own. They are called once for each row, and once for each partial that is merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import NotAnInverse, UnfitValue, UserFunctionError, WrongOutput, WrongWindowOutput
from penstock.graph.aggregates import CustomFunctions
from penstock.graph.source_location import line_of
from penstock.operators.aggregates.cells import Column, InvertibleCell, Partials, Rows, as_arrow, without_nulls
from penstock.operators.columns import ddl_schema
from penstock.operators.debug_mode import alike, is_debugging
from penstock.operators.functions.output_columns import typed_column
from penstock.operators.functions.python_values import first_unfit, key_values, python_values
from penstock.operators.functions.user_function import UserFunction
from penstock.state.keys import Ints

__all__ = ["Custom", "CustomTypes", "computed", "custom_types", "naming_keys"]

_VALUE = "value"


@dataclass(frozen=True, slots=True)
class CustomTypes:
    """The types of a custom aggregate: of its state, whose columns functions see as a dict, and of its result."""

    state: pa.DataType
    result: pa.DataType


def custom_types(functions: CustomFunctions, what: str) -> CustomTypes:
    """Return the types that DDL declares; raises BadExpression and JobError for what is none. Needs Spark."""
    columns = ddl_schema(functions.state, f"state= of {what}")
    one = columns.field(0).type if len(columns) == 1 else None
    result = ddl_schema(f"{_VALUE} {functions.output}", f"output= of {what}").field(0).type
    return CustomTypes(pa.struct([*columns]) if one is None else one, result)


@dataclass(frozen=True, slots=True)
class Custom(InvertibleCell):
    """The states of groups; `kind` is their type, and `what` the aggregate in words, for errors."""

    nothing_is_null = True
    functions: CustomFunctions
    what: str

    def reduce(self, rows: Rows, ids: Ints, groups: int) -> Partials:
        """Add the values of each group that are not null."""
        column, ids = without_nulls(self.read(rows), ids)
        states: list[Any] = [None] * groups
        add = self.functions.add
        for group, value in zip(ids.tolist(), _plain(column, str(self.input), self.what), strict=True):
            old = states[group]
            states[group] = self._state(self._called(add, "add", group, self._whole(old), value), add, "add", group)
        return {self.columns[0]: self._column(states)}

    def merge(self, partials: Partials, ids: Ints, groups: int, sign: Ints | None = None) -> Partials:
        """Merge the states of each group, or subtract some; those that are alone in their group stay as they are."""
        column = as_arrow(partials[self.columns[0]])
        several = np.flatnonzero(np.bincount(ids, minlength=groups)[ids] > 1)
        if sign is not None:
            several = np.flatnonzero((np.bincount(ids, minlength=groups)[ids] > 1) | (sign < 0))
        first = np.full(groups, -1, dtype=np.int64)
        first[ids] = np.arange(len(ids))
        if not len(several):
            return {self.columns[0]: column.take(pa.array(first, mask=first < 0))}
        signs = np.ones(len(ids), dtype=np.int64) if sign is None else sign
        # What leaves is subtracted once all is merged that it is in.
        several = several[np.argsort(-signs[several], kind="stable")]
        states: dict[int, Any] = {}
        values = _plain(column.take(pa.array(several)), "state", self.what)
        for group, one, value in zip(ids[several].tolist(), signs[several].tolist(), values, strict=True):
            states[group] = self._merged(states.get(group), value, one, group)
        touched = np.array(sorted(states), dtype=np.int64)
        made = self._column([states[group] for group in touched.tolist()], touched)
        place = first.copy()
        place[touched] = len(column) + np.arange(len(touched))
        whole = pa.concat_arrays([column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column, made])
        return {self.columns[0]: whole.take(pa.array(place, mask=place < 0))}

    def _merged(self, old: Any, value: Any, sign: int, group: int) -> Any:
        """Return a state with another merged into it, or subtracted; None is that of no values."""
        if value is None:
            return old
        functions = self.functions
        if sign > 0:
            if old is None:
                return value
            return self._state(
                self._called(functions.merge, "merge", group, old, value), functions.merge, "merge", group
            )
        subtract = functions.subtract
        assert subtract is not None
        if old is not None and is_debugging():
            self._check_inverse(old, value, group)
        return self._state(
            self._called(subtract, "subtract", group, self._whole(old), value), subtract, "subtract", group
        )

    def _check_inverse(self, old: Any, value: Any, group: int) -> None:
        """Raise NotAnInverse where subtracting what was merged does not give back the state."""
        functions = self.functions
        assert functions.subtract is not None
        both = self._called(functions.merge, "merge", group, deepcopy(old), deepcopy(value))
        back = self._called(functions.subtract, "subtract", group, both, deepcopy(value))
        # As stored, so that an int and a float, or a tuple and a list, are one.
        made, wanted = (self._column([state], np.array([group])) for state in (back, old))
        if not alike(*(_plain(column, "state", self.what) for column in (made, wanted))):
            raise NotAnInverse(
                f"{self.what}: subtract(merge(a, b), b) is {back!r:.80} for a = {old!r:.80} and b = {value!r:.80}",
                where=line_of(functions.subtract),
                group=group,
            )

    def _whole(self, state: Any) -> Any:
        return self.functions.start() if state is None else state

    def _state(self, state: Any, fn: Callable[..., Any], method: str, group: int) -> Any:
        """Return a state; raises WrongWindowOutput for None, unless that is `zero`."""
        if state is None and self.functions.start() is not None:
            raise WrongWindowOutput(f"{self.what}: {method} returned None, not a state", where=line_of(fn), group=group)
        return state

    def _called(self, fn: Callable[..., Any], method: str, group: int, *arguments: Any) -> Any:
        try:
            return fn(*arguments)
        except Exception as why:
            error = UserFunction(self.what, fn).blamed(why, method)
            raise UserFunctionError(error.what, group=group) from why

    def _column(self, states: Sequence[Any], groups: Ints | None = None) -> pa.Array:
        return _typed(states, pa.field("state", self.kind), self.what, self.functions.add, groups)


def computed(states: Column, kind: pa.DataType, functions: CustomFunctions, what: str) -> pa.Array:
    """Return the results of states, in their type; that of no values is the result of `zero`."""
    results = []
    for group, state in enumerate(_plain(as_arrow(states), "state", what)):
        try:
            results.append(functions.result(functions.start() if state is None else state))
        except Exception as why:
            error = UserFunction(what, functions.result).blamed(why, "result")
            raise UserFunctionError(error.what, group=group) from why
    return _typed(results, pa.field("result", kind), what, functions.result, None)


@contextmanager
def naming_keys(keys: Sequence[pa.Array], rows: Ints) -> Iterator[None]:
    """Add the key to errors of functions inside the block; `rows` has for each group the place of its key in `keys`."""
    try:
        yield
    except UserFunctionError as error:
        group = error.fields.get("group")
        if not isinstance(group, int) or not keys:
            raise
        place = pa.array(rows[group : group + 1])
        names = [f"k{number}" for number in range(len(keys))]
        (key,) = key_values(pa.table([column.take(place) for column in keys], names=names), 1)
        shown = tuple(key) if len(keys) > 1 else key
        raise type(error)(f"{error.what}, key {shown!r}", where=error.where) from error.__cause__


def _plain(column: pa.Array, name: str, what: str) -> list[Any]:
    """Return values as Python objects, maps as dicts; raises UnfitValue for the first that Python cannot hold."""
    values = python_values(column, name)
    if lost := first_unfit(values):
        raise UnfitValue(f"{what}: column {name!r} has {lost.shown}, which no Python object holds")
    return values


def _typed(values: Sequence[Any], field: pa.Field, what: str, fn: Callable[..., Any], groups: Ints | None) -> pa.Array:
    """Return values as a column; raises WrongWindowOutput for the first that does not fit, with its group."""
    try:
        return typed_column(values, field, what)
    except WrongOutput as why:
        for place, value in enumerate(values):
            try:
                typed_column([value], field, what)
            except WrongOutput:
                group = place if groups is None else int(groups[place])
                raise WrongWindowOutput(why.what, where=line_of(fn), group=group) from None
        raise
