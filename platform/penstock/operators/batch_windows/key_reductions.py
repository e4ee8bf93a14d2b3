"""Reduce values by functions of the user's: plain Python values, in order of arrival, one call for each two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from operator import length_hint
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import UnfitValue, UserFunctionError
from penstock.operators.functions.output_columns import typed_column
from penstock.operators.functions.python_values import PIECE, Unfit, holds_all, key_values, python_values
from penstock.operators.functions.user_function import TaskInfo, UserFunction, task_facts
from penstock.operators.grouping import Grouping
from penstock.operators.protocol import StepFacts
from penstock.state.keys import Ints

__all__ = ["KeyReduction", "replaced", "shown_key"]

Reduce = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReduction:
    """A function of two values, which a step calls for those of each key; `field` is the value."""

    step: str
    field: pa.Field
    fn: Reduce
    inverse: Reduce | None = None

    def reduced(self, values: pa.Array, grouping: Grouping, keys: pa.Table) -> pa.Array:
        """Reduce the values of each key, in their order, and return one for each; a single one stays as it is.

        `keys` has the key columns of each group.

        Raises:
            UserFunctionError: The function raises.
            WrongOutput: It returns what the type of the value does not hold.
            UnfitValue: A value is one that Python cannot hold.
        """
        firsts = values.take(pa.array(grouping.first))
        many = np.bincount(grouping.ids, minlength=grouping.groups) > 1
        if not many.any():
            return firsts
        rows = np.flatnonzero(many[grouping.ids])
        rows = rows[np.argsort(grouping.ids[rows], kind="stable")]
        made = self._folded(values.take(pa.array(rows)), grouping.ids[rows], keys)
        return replaced(firsts, np.flatnonzero(many), self.typed(made))

    def _folded(self, values: pa.Array, ids: Ints, keys: pa.Table) -> list[Any]:
        """Return one value for each run of equal ids."""
        made: list[Any] = []
        current, value, fn = -1, None, self.fn
        for start in range(0, len(ids), PIECE):
            items = self.plain(values.slice(start, PIECE), ids[start : start + PIECE], keys)
            try:
                for key, item in zip(ids[start : start + PIECE].tolist(), items, strict=True):
                    if key == current:
                        value = fn(value, item)
                        continue
                    if current >= 0:
                        made.append(value)
                    current, value = key, item
            except Exception as why:
                raise self.blamed(fn, why, keys, current) from why
        return [*made, value]

    def called(self, fn: Reduce, first: list[Any], second: list[Any], ids: Ints, keys: pa.Table) -> list[Any]:
        """Return what a function makes of each two values, of which each is of a key; raises UserFunctionError."""
        left = iter(first)
        try:
            return [fn(value, other) for value, other in zip(left, second, strict=True)]
        except Exception as why:
            at = len(first) - length_hint(left) - 1
            raise self.blamed(fn, why, keys, int(ids[at])) from why

    def plain(self, values: pa.Array, ids: Ints, keys: pa.Table) -> list[Any]:
        """Return values, each of a key, as Python objects; raises UnfitValue."""
        items = python_values(values, self.field.name)
        if not holds_all(values.type) and Unfit in set(map(type, items)):
            at, item = next((at, item) for at, item in enumerate(items) if isinstance(item, Unfit))
            raise UnfitValue(
                f"window {self.step!r}: column {item.column!r} of a row of key {shown_key(keys, int(ids[at]))} is "
                f"{item.shown}, which no Python object holds"
            )
        return items

    def typed(self, values: list[Any]) -> pa.Array:
        """Return what functions made as a column; raises WrongOutput for what it does not hold."""
        return typed_column(values, self.field, f"the values of window {self.step!r}")

    def blamed(self, fn: Reduce, why: Exception, keys: pa.Table, key: int) -> UserFunctionError:
        """Return the error of a function that raised for a key."""
        return UserFunction(f"window {self.step!r}", fn).blamed(why, f"key {shown_key(keys, key)}")

    @contextmanager
    def opened(self, facts: StepFacts) -> Iterator[None]:
        """Open functions that are objects with `open(info)`, and close them, whatever comes between.

        Raises UserFunctionError for what they raise; after an error that of `close` is suppressed.
        """
        info = TaskInfo(**task_facts(facts))
        with ExitStack() as opened:
            for fn in self.functions:
                opened.enter_context(UserFunction(f"window {self.step!r}", fn).opened(info))
            yield

    @property
    def functions(self) -> tuple[Reduce, ...]:
        """Return the functions."""
        return (self.fn,) if self.inverse is None or self.inverse is self.fn else (self.fn, self.inverse)


def replaced(values: pa.Array, places: Ints, by: pa.Array) -> pa.Array:
    """Return values with others at some places."""
    index = np.arange(len(values), dtype=np.int64)
    index[places] = len(values) + np.arange(len(places))
    return pa.concat_arrays([values, by]).take(pa.array(index))


def shown_key(keys: pa.Table, place: int) -> str:
    """Return a key for the text of an error: that a function of the user's would get."""
    (key,) = key_values(keys.slice(place, 1), 1)
    return repr(key)
