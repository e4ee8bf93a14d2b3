"""Describe a step with a function, and the state it keeps."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.graph.specs.state_functions import StateFunction
from penstock.state.keys import Ints
from penstock.state.row_layout import EXPIRES, GROUP, HASH

__all__ = ["DEADLINE", "FunctionStep"]

DEADLINE = "_deadline"
"""int64, microseconds, may be null: when a key with state times out by event time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionStep:
    """A step with a function and the state it keeps; a value that can be sent to a task.

    `spec` is as the job wrote it, without what makes the first state. `event` says whether the step has event time.
    """

    name: str
    spec: StateFunction
    keys: pa.Schema
    state: pa.Schema
    output: pa.Schema
    event: bool
    timed_by: str | None = None
    """The column of the output that must have no null, because a step reads event time from it."""

    @property
    def stored(self) -> pa.Schema:
        """Return the columns beside group, hash and keys that a row of state has."""
        more = [pa.field(EXPIRES, pa.int64())] if self.spec.timeout.idle is not None else []
        more += [pa.field(DEADLINE, pa.int64())] if self.spec.timeout.event_time else []
        return pa.schema([*self.state, *more])

    def entries(self, groups: Ints, hashes: Ints, keys: pa.Table) -> pa.Table:
        """Return rows of an index: group, hash, keys."""
        columns = [pa.array(groups, pa.int64()), pa.array(hashes, pa.int64()), *keys.columns]
        return pa.table(columns, schema=pa.schema([(GROUP, pa.int64()), (HASH, pa.int64()), *self.keys]))
