"""Call a function that keeps state once for all rows of a partition, with Arrow tables (SEMANTICS 7.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import WrongOutput
from penstock.operators.columns import column_array
from penstock.operators.event_times import event_time_missing
from penstock.operators.functions.calls_base import ArrowInfo, Calls, Emitted
from penstock.operators.functions.key_index import NONE
from penstock.operators.functions.output_columns import typed_table
from penstock.operators.functions.user_function import task_facts
from penstock.state.hashing import content_hashes
from penstock.state.keys import Ints
from penstock.time.arrival import BY_CALL, BY_TIME, Stand

__all__ = ["ArrowCalls"]


class ArrowCalls(Calls):
    """A whole partition at once."""

    def run(self, rows: pa.Table, times: Ints) -> list[pa.Array]:
        """Call for the rows, then for the keys that time out; return the state columns of all keys."""
        ledger = self.ledger
        touched = np.flatnonzero(ledger.had_rows)
        new = None
        if len(touched):
            place = np.full(len(ledger.hashes), -1, dtype=np.int64)
            place[touched] = np.arange(len(touched))
            new = self._call(rows, times, touched, pa.array(place[ledger.row_ids]))
            if new is not None:
                ledger.exists[touched] = _has_state(new)
                ledger.changed[touched] = True
        over = ledger.timing_out()
        if len(over):
            self._call(rows.slice(0, 0), times[:0], over, pa.array([], pa.int64()), timing_out=True)
            ledger.forget(over)
        ledger.touch()
        if new is None:
            return ledger.with_new(touched[:0], [])
        return ledger.with_new(touched, [column_array(new, name) for name in new.column_names])

    def _call(
        self, rows: pa.Table, times: Ints, at: Ints, index: pa.Array, *, timing_out: bool = False
    ) -> pa.Table | None:
        """Return the new state of the keys at these places, None where the call has failed."""
        ledger = self.ledger
        places = pa.array(at)
        keys, state = ledger.keys.take(places), ledger.table.take(places)
        info = ArrowInfo(**task_facts(self.moment), keys=keys, key_index=index, timing_out=timing_out)
        try:
            made, new = self._checked(self.fn(rows, state, info), len(at), timing_out=timing_out)
            placed = None if made is None else Emitted(made, *self._placed(made, times, at, timing_out=timing_out))
        except Exception as why:  # noqa: BLE001 - whatever a function of the user's raises
            calls: list[tuple[int | None, int, int, Any]] = [
                (row, key, 0, None) for row, key in enumerate(ledger.row_ids.tolist())
            ]
            if timing_out:  # the state expires all the same, so the quarantined row has it; else the key keeps it
                due = ledger.expires[at].tolist()
                calls = [(None, *call) for call in zip(at.tolist(), due, ledger.states(at), strict=True)]
            self.fail(why, f"one of {len(at)}", calls)
            return None
        if placed is not None:
            self.made.append(placed)
        return new

    def _checked(self, returned: object, keys: int, *, timing_out: bool) -> tuple[pa.Table | None, pa.Table | None]:
        """Return output and state with the declared columns; raises WrongOutput for anything else."""
        step = self.step
        if not isinstance(returned, tuple) or len(returned) != 2:  # noqa: PLR2004 - output and state
            raise WrongOutput(f"step {step.name!r} returned a {type(returned).__name__}, not (out, state)")
        out, new = returned
        made = None if out is None else typed_table(out, step.output, f"what step {step.name!r} emitted")
        if made is not None and step.timed_by is not None and made[step.timed_by].null_count:
            raise event_time_missing(step.name, step.timed_by, made[step.timed_by], made)
        if timing_out:
            return made, None
        state = typed_table(new, step.state, f"the state of step {step.name!r}")
        if state.num_rows != keys:
            raise WrongOutput(f"step {step.name!r} returned {state.num_rows} rows of state for {keys} keys")
        return made, state

    def _placed(self, made: pa.Table, times: Ints, at: Ints, *, timing_out: bool) -> tuple[Ints, Stand]:
        """Return event times and places of the rows that a call has returned (SEMANTICS 1.6, 7.1)."""
        step, ledger, n = self.step, self.ledger, made.num_rows
        if not step.spec.same_rows:
            # The input row of each is unknown, so the hash of its key, or of all its columns, makes the order.
            keyed = all(made.schema.field(k.name).type == k.type for k in step.keys if k.name in made.column_names)
            named = step.keys.names if keyed and set(step.keys.names) <= set(made.column_names) else made.column_names
            hashes = content_hashes([made[name] for name in named], n)
            rows = np.full(n, BY_TIME if timing_out else BY_CALL, dtype=np.int64)
            unknown = np.full(n, NONE, dtype=np.int64)
            return unknown, Stand(rows=rows, times=unknown, hashes=hashes)
        if timing_out:
            at = at if n else at[:0]
            if n != len(at):
                raise WrongOutput(
                    f"step {step.name!r} has same_rows=True and emitted {n} rows for {len(at)} keys that time out"
                )
            by_time = np.full(n, BY_TIME, dtype=np.int64)
            stand = Stand(rows=by_time, times=ledger.expires[at], hashes=ledger.hashes[at])
            return self.batch_times[at], stand
        if n != len(times):
            raise WrongOutput(f"step {step.name!r} has same_rows=True and emitted {n} rows for {len(times)}")
        nothing = np.zeros(n, dtype=np.int64)
        return times, Stand(rows=np.arange(n, dtype=np.int64), times=nothing, hashes=nothing)


def _has_state(table: pa.Table) -> Any:
    """Return which rows have a column that is not null."""
    has_state = np.zeros(table.num_rows, dtype=np.bool_)
    for column in table.columns:
        has_state |= column.is_valid().to_numpy()
    return has_state
