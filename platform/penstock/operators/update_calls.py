"""Call a function that keeps state for each key, with all its values of the batch (SEMANTICS 7.5)."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import WrongOutput
from penstock.operators.function_calls import Calls, is_nested
from penstock.state.keys import Ints
from penstock.time.arrival import BY_TIME

__all__ = ["UpdateCalls"]


class UpdateCalls(Calls):
    """All values of a key at once."""

    def run(self, rows: pa.Table, times: Ints) -> list[pa.Array]:
        """Call for each key with rows or state, in the order of their hashes; return the state columns of all keys."""
        step, ledger, batch_times = self.step, self.ledger, self.now(times)
        single = step.state.names[0] if len(step.state) == 1 else None
        nested = is_nested(step.state)
        self._by_key: tuple[Ints, Ints] | None = None
        self.names = names = ledger.key_values()
        values: list[list[Any]] = [[] for _ in names]
        for value, key in zip(rows.column(step.value).to_pylist(), ledger.row_ids.tolist(), strict=True):
            values[key].append(value)
        kept: list[dict[str, Any] | None] = []
        olds = ledger.table.to_pylist()
        columns = list(zip(*(column.to_pylist() for column in ledger.keys.columns), strict=True)) or [()] * len(names)
        for key, name in enumerate(names):
            old = olds[key] if ledger.before[key] else None
            if not (ledger.had_rows[key] or (ledger.before[key] and step.every_batch)):
                kept.append(old)
                continue
            shown = old if old is None or single is None else old[single]
            try:
                more = (self.time, name) if step.with_key_time else ()
                new = step.fn(*more, values[key], shown)
            except Exception as why:  # noqa: BLE001 - whatever a function of the user's raises
                if old is not None:  # the function may have changed a list in it
                    (old,) = ledger.table.slice(key, 1).to_pylist()
                self.fail(why, name, [(row, key, self.moment.time, old) for row in self._rows_of(key)])
                kept.append(old)
                continue
            ledger.exists[key], ledger.changed[key] = new is not None, True
            made = None if new is None else self._whole(new, name) if single is None else {single: new}
            made = deepcopy(made) if nested else made  # the function may go on with what it has returned
            kept.append(made)
            if made is not None:
                self.put_out.append({**dict(zip(step.keys.names, columns[key], strict=True)), **made})
                self.put_for.append(key)
                self.times.append(int(batch_times[key]))
                self.stands.append((BY_TIME, self.moment.time))
        return self.state_columns(kept, names)

    def _rows_of(self, key: int) -> list[int | None]:
        """Return the places of a key's rows in the batch, None for a key without rows; sorts once, not for each key."""
        if self._by_key is None:
            order = np.argsort(self.ledger.row_ids, kind="stable")
            self._by_key = order, self.ledger.row_ids[order]
        order, ids = self._by_key
        first, last = np.searchsorted(ids, [key, key + 1])
        return order[first:last].tolist() or [None]

    def _whole(self, new: object, key: Any) -> dict[str, Any]:
        names = self.step.state.names
        if not isinstance(new, Mapping) or new.keys() != set(names):
            raise WrongOutput(f"step {self.step.name!r} returned {new!r:.80} for key {key!r}, not a dict of {names}")
        return dict(new)
