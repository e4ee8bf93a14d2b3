"""Run functions of the user's that keep state for each key, on plain Arrow tables (SEMANTICS 7.1, 7.2, 7.5, 7.8).

Nothing here knows Spark, files or clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.graph.specs.state_functions import Form
from penstock.operators.functions.arrow_calls import ArrowCalls
from penstock.operators.functions.calls_base import Calls, Emitted
from penstock.operators.functions.function_spec import FunctionStep
from penstock.operators.functions.key_timeouts import KeyIndex
from penstock.operators.functions.row_and_timer_calls import RowCalls
from penstock.operators.functions.update_calls import UpdateCalls
from penstock.operators.protocol import Due, StateView, StepFacts
from penstock.state.keys import Ints
from penstock.state.writer import Change

__all__ = ["FunctionResult", "run_function"]


_CALLS: Mapping[Form, type[Calls]] = {Form.ROWS: RowCalls, Form.ARROW: ArrowCalls, Form.UPDATE: UpdateCalls}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionResult:
    """The effect of a batch on one state partition.

    Attributes:
        output: The emitted rows.
        aside: The quarantined rows of failed calls; a call without a row has one with the key only.
        change: The rows to add to the state.
        due: When the partition has work though no row comes.
        rows: How many rows of the batch the function has taken, without the quarantined ones.
        aside_rows: How many of the quarantined ones are rows of the batch.
        now: Returns the event times of output that no single row has caused, from the hashes of the keys.
    """

    output: Emitted
    aside: Emitted
    change: Change
    due: Due
    rows: int
    aside_rows: int
    now: Callable[[Ints], Ints]


def run_function(
    step: FunctionStep,
    state: StateView,
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
        state: The partition's state.
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
    ledger = KeyIndex(step, state, moment)
    ledger.open(hashes, keys, whole=step.every_batch)
    run = _CALLS[step.form](step, ledger, moment, where)
    with run.opened():
        columns = run.run(rows, times)
    change = ledger.change(columns)
    failed = sum(row is not None for row, *_ in run.failed)
    return FunctionResult(
        output=run.output(),
        aside=run.aside(rows, times),
        change=change,
        due=ledger.next_due(change),
        rows=rows.num_rows - failed,
        aside_rows=failed,
        now=lambda of: run.now_of(of, times),
    )
