"""Run functions of the user's that keep state for each key, on plain Arrow tables (SEMANTICS 7.1, 7.2, 7.5, 7.8).

Nothing here knows Spark, files or clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.graph.specs.state_functions import Form
from penstock.operators.functions.arrow_calls import ArrowCalls
from penstock.operators.functions.function_calls import ASIDE, Calls
from penstock.operators.functions.function_spec import FunctionStep
from penstock.operators.functions.key_index import KeyIndex, StateSource
from penstock.operators.functions.row_calls import RowCalls
from penstock.operators.functions.update_calls import UpdateCalls
from penstock.operators.protocol import StepFacts
from penstock.state.keys import Ints
from penstock.state.writer import Change
from penstock.time.arrival import Stand

__all__ = ["ASIDE", "FunctionResult", "run_function"]


_CALLS: Mapping[Form, type[Calls]] = {Form.ROWS: RowCalls, Form.ARROW: ArrowCalls, Form.UPDATE: UpdateCalls}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionResult:
    """Hold what a batch did in one state partition.

    `output` and `times`: the rows put out, and the event time of each. `due` and `due_time`: when the partition is to
    be looked at next though no row comes, by the watermark and by the batch time. `rows`: those that were taken.
    `aside` and `aside_times`: the rows of calls that raised, `aside_rows` of them from the batch; a call without a row
    has one with the key only. `stand` and `aside_stand`: where they stand in the order of arrival.
    `now` returns the event times of what no single row has caused, from the hashes of the keys.
    """

    output: pa.Table
    times: Ints
    stand: Stand
    change: Change
    due: int | None
    due_time: int | None
    rows: int
    aside: pa.Table
    aside_times: Ints
    aside_stand: Stand
    aside_rows: int
    now: Callable[[Ints], Ints]


def run_function(
    step: FunctionStep,
    source: StateSource,
    rows: pa.Table,
    hashes: Ints,
    keys: pa.Table,
    times: Ints,
    moment: StepFacts,
    where: Callable[[int], str] = "row {} of the batch".format,
) -> FunctionResult:
    """Run a batch's rows, in order of arrival, through the function of one partition.

    `rows` has the visible columns, `keys` the key columns, `hashes` and `times` (event time) a number for each row;
    `where` says in words where a row came from.
    Raises UserFunctionError where the function raises, unless the step puts such rows aside, and WrongOutput where it
    returns what was not declared, and UnfitValue for a value that Python cannot hold, unless the step puts such rows
    aside.
    """
    ledger = KeyIndex(step.kept, source, moment)
    ledger.open(hashes, keys, whole=step.every_batch)
    run = _CALLS[step.form](step, ledger, moment, where)
    with run.opened():
        columns = run.run(rows, times)
    change = ledger.change(columns)
    due, due_time = ledger.next_due(change)
    if step.every_batch and ledger.exists.any():
        due_time = moment.time + 1  # at the next tick
    output, put_out, stand = run.output()
    aside, aside_times, aside_stand = run.aside(rows, times)
    failed = sum(row is not None for row, *_ in run.failed)
    return FunctionResult(
        output=output,
        times=put_out,
        stand=stand,
        change=change,
        due=due,
        due_time=due_time,
        rows=rows.num_rows - failed,
        aside=aside,
        aside_times=aside_times,
        aside_stand=aside_stand,
        aside_rows=failed,
        now=lambda of: run.now_of(of, times),
    )
