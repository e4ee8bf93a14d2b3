"""Run functions of the user's that keep state for each key, on plain Arrow tables (SEMANTICS 7.1, 7.2, 7.5, 7.8).

Nothing here knows Spark, files or clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.graph.specs.state_functions import Form
from penstock.operators.functions.arrow_calls import ArrowCalls
from penstock.operators.functions.calls_base import ASIDE, Calls
from penstock.operators.functions.function_spec import FunctionStep
from penstock.operators.functions.key_timeouts import KeyIndex, StateSource
from penstock.operators.functions.row_and_timer_calls import RowCalls
from penstock.operators.functions.update_calls import UpdateCalls
from penstock.operators.protocol import StepFacts
from penstock.state.keys import Ints
from penstock.state.writer import Change
from penstock.time.arrival import Stand

__all__ = ["ASIDE", "FunctionResult", "run_function"]


_CALLS: Mapping[Form, type[Calls]] = {Form.ROWS: RowCalls, Form.ARROW: ArrowCalls, Form.UPDATE: UpdateCalls}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionResult:
    """The effect of a batch on one state partition; times are int64 microseconds.

    Attributes:
        output: The emitted rows.
        times: The event time of each.
        stand: What has caused each, for the order of arrival.
        change: The rows to add to the state.
        due: The watermark at which the partition has work though no row comes; None where it has none.
        due_time: The same by batch time.
        rows: How many rows of the batch the function has taken, without the quarantined ones.
        aside: The quarantined rows of failed calls; a call without a row has one with the key only.
        aside_times: The event time of each.
        aside_stand: What has caused each, for the order of arrival.
        aside_rows: How many of them are rows of the batch.
        now: Returns the event times of output that no single row has caused, from the hashes of the keys.
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

    Unless the step quarantines the rows of failed calls, it raises their errors.

    Args:
        step: The step.
        source: The partition's state.
        rows: The visible columns of the rows.
        hashes: int64: the hash of each row's key.
        keys: The key columns of the rows.
        times: int64: the event time of each row, microseconds.
        moment: The facts of the batch.
        where: Returns in words where a row of the batch came from.

    Raises:
        UserFunctionError: The function raises.
        WrongOutput: The function returns what the step does not declare.
        UnfitValue: A row, a key or a state has a value that Python cannot hold.
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
