"""Call a function that keeps state for each key, with all its values of the batch (SEMANTICS 7.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import WrongOutput
from penstock.operators.columns import column_array
from penstock.operators.functions.calls_base import Calls, Emitted, ints, is_nested
from penstock.operators.functions.output_columns import checker
from penstock.operators.functions.python_values import PIECE, first_unfit, python_values
from penstock.state.keys import Bools, Ints
from penstock.time.arrival import BY_TIME, Stand

__all__ = ["UpdateCalls"]


class UpdateCalls(Calls):
    """All values of a key at once; keys and their values are Python objects a piece at a time."""

    def run(self, rows: pa.Table, times: Ints) -> list[pa.Array]:
        """Call for each key with rows or state, in the order of their hashes; return the state columns of all keys."""
        step, ledger = self.step, self.ledger
        assert step.spec.value is not None
        self.single = step.state.names[0] if len(step.state) == 1 else None
        self.nested = is_nested(step.state)
        self.check = checker(step.state, f"the state of step {step.name!r}")
        self.order = np.argsort(ledger.row_ids, kind="stable")
        self.ends = np.searchsorted(ledger.row_ids[self.order], np.arange(len(ledger.hashes) + 1))
        self.given = column_array(rows, step.spec.value).take(pa.array(self.order))
        called = np.flatnonzero(ledger.had_rows | (ledger.before if step.spec.every_batch else False))
        changed: list[tuple[Ints, list[pa.Array]]] = [self._piece(keys) for keys in self._pieces(called)]
        if not changed:
            return ledger.with_new(called[:0], [])
        columns = [pa.concat_arrays(parts) for parts in zip(*(made for _, made in changed), strict=True)]
        return ledger.with_new(np.concatenate([keys for keys, _ in changed]), columns)

    def _pieces(self, called: Ints) -> Iterator[Ints]:
        """Yield keys whose number, and that of their rows, is bounded; the rows of one key stay together."""
        start, ends = 0, self.ends[called + 1]
        while start < len(called):
            most = self.ends[called[start]] + PIECE
            full = int(np.searchsorted(ends, most, side="right"))
            end = max(start + 1, min(start + PIECE, full))
            yield called[start:end]
            start = end

    def _piece(self, keys: Ints) -> tuple[Ints, list[pa.Array]]:
        """Call for some keys; return those whose state is another now, and their state columns."""
        ledger = self.ledger
        first = int(self.ends[keys[0]])
        values = python_values(self.given.slice(first, int(self.ends[keys[-1] + 1]) - first), str(self.step.spec.value))
        done: list[int] = []
        made: list[dict[str, Any] | None] = []
        for key, name, old in zip(keys.tolist(), ledger.key_values(keys), ledger.states(keys), strict=True):
            mine = values[self.ends[key] - first : self.ends[key + 1] - first]
            try:
                new = self._new(name, mine, old)
            except Exception as why:  # noqa: BLE001 - whatever a function of the user's raises
                # From the table once more: the function may have changed a list in what it was given.
                (kept,) = ledger.states(ints([key]))
                self.fail(why, name, [(row, key, self.moment.time, kept) for row in self._rows_of(key)])
                continue
            done.append(key)
            made.append(new)
        called, columns = ints(done), self.state_columns(made)
        exists = np.array([new is not None for new in made], dtype=np.bool_)
        self._emit(called[exists], [column.filter(pa.array(exists)) for column in columns])
        ledger.exists[called] = exists
        other = (exists != ledger.before[called]) | self._differs(called, columns)
        ledger.changed[called] = other
        return called[other], [column.filter(pa.array(other)) for column in columns]

    def _new(self, name: Any, values: list[Any], old: Any) -> dict[str, Any] | None:
        step = self.step
        if lost := first_unfit((name, old, *values)):
            of = "a key" if lost is name else f"the state of key {name!r}" if lost is old else f"a row of key {name!r}"
            raise self.unfit(lost, of)
        shown = old if old is None or self.single is None else old[self.single]
        new = self.fn(*((self.time, name) if step.spec.with_key_time else ()), values, shown)
        if new is None:
            return None
        made = self._whole(new, name) if self.single is None else {self.single: new}
        self.check(made, name)
        return deepcopy(made) if self.nested else made  # the function may change later what it has returned

    def _emit(self, keys: Ints, columns: list[pa.Array]) -> None:
        """Emit keys and their new state."""
        if not len(keys):
            return
        rows = [*self.ledger.keys.take(pa.array(keys)).columns, *columns]
        by_time = np.full(len(keys), BY_TIME, dtype=np.int64)
        due = np.full(len(keys), self.moment.time, dtype=np.int64)
        stand = Stand(rows=by_time, times=due, hashes=self.ledger.hashes[keys])
        self.made.append(Emitted(pa.table(rows, schema=self.step.output), self.batch_times[keys], stand))

    def _differs(self, keys: Ints, columns: list[pa.Array]) -> Bools:
        """Return which keys have other state than before the batch: what stays as it was is not written again."""
        before = self.ledger.table.take(pa.array(keys))
        differs = np.zeros(len(keys), dtype=np.bool_)
        for field, now in zip(self.step.state, columns, strict=True):
            differs |= _unlike(now, column_array(before, field.name))
        return differs

    def _rows_of(self, key: int) -> list[int | None]:
        """Return the places of a key's rows in the batch, None for a key without rows."""
        return self.order[self.ends[key] : self.ends[key + 1]].tolist() or [None]

    def _whole(self, new: object, key: Any) -> dict[str, Any]:
        names = self.step.state.names
        if not isinstance(new, Mapping) or new.keys() != set(names):
            raise WrongOutput(f"step {self.step.name!r} returned {new!r:.80} for key {key!r}, not a dict of {names}")
        return dict(new)


def _unlike(new: pa.Array, old: pa.Array) -> Bools:
    """Return where two columns differ; floats by their bits, so that -0.0 is not 0.0."""
    if pa.types.is_nested(new.type):
        return np.array([not a.equals(b) for a, b in zip(new, old, strict=True)], dtype=np.bool_)
    if pa.types.is_floating(new.type):
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[new.type.bit_width]
        new, old = new.view(bits), old.view(bits)
    try:
        same = pc.if_else(pc.and_(new.is_valid(), old.is_valid()), pc.equal(new, old), None)
    except pa.ArrowNotImplementedError:  # an interval of months
        return np.ones(len(new), dtype=np.bool_)
    both_null = pc.and_(new.is_null(), old.is_null())
    unlike: Bools = pc.invert(pc.fill_null(same, both_null)).to_numpy(zero_copy_only=False)
    return unlike
