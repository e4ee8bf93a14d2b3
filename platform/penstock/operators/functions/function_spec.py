"""Describe a step with a function: its arguments, and the state it keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.graph.specs.state_functions import Form
from penstock.graph.timeouts import Timeout
from penstock.state.keys import Ints
from penstock.state.row_layout import EXPIRES, GROUP, HASH

__all__ = ["DEADLINE", "FunctionStep"]

DEADLINE = "_deadline"
"""int64, microseconds, may be null: when a key with state times out by event time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionStep:
    """A step with a function, its arguments and the state it keeps; a value that can be sent to a task.

    `visible` are the columns of the rows that the function sees. `event` says whether the step has event time.
    """

    name: str
    form: Form
    fn: Callable[..., Any]
    keys: pa.Schema
    state: pa.Schema
    output: pa.Schema
    visible: tuple[str, ...]
    timeout: Timeout
    event: bool
    value: str | None = None
    every_batch: bool = False
    """Whether every batch calls for every key that has state."""
    with_key_time: bool = False
    quarantine: bool = False
    same_rows: bool = False
    """Whether a vectorised function emits one row for each input row, in their order."""
    timed_by: str | None = None
    """The column of the output that must have no null, because a step reads event time from it."""

    @property
    def stored(self) -> pa.Schema:
        """Return the columns beside group, hash and keys that a row of state has."""
        more = [pa.field(EXPIRES, pa.int64())] if self.timeout.idle is not None else []
        more += [pa.field(DEADLINE, pa.int64())] if self.timeout.event_time else []
        return pa.schema([*self.state, *more])

    def entries(self, groups: Ints, hashes: Ints, keys: pa.Table) -> pa.Table:
        """Return rows of an index: group, hash, keys."""
        columns = [pa.array(groups, pa.int64()), pa.array(hashes, pa.int64()), *keys.columns]
        return pa.table(columns, schema=pa.schema([(GROUP, pa.int64()), (HASH, pa.int64()), *self.keys]))
