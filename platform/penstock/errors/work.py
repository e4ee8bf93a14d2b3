"""Name what can go wrong while a batch is computed: state and operators."""

from __future__ import annotations

from penstock.errors.root import EXIT_RETRY, PenstockError


class StateError(PenstockError):
    """Root of all errors of keyed state."""

    code = "PEN-STA-000"
    remedy = "Restart from the last commit."


class WrongPartition(StateError):
    """Rows have reached a state partition that their key does not belong to."""

    code = "PEN-STA-001"
    remedy = "Report this: rows reached a state partition that is not theirs."


class StateTooLarge(StateError):
    """The state of a step exceeds its limit."""

    code = "PEN-STA-002"
    remedy = "Bound the state by time, or raise `state` in [limits] of the configuration."


class StateRowTooLarge(StateTooLarge):
    """The state of one key exceeds its limit."""

    code = "PEN-STA-008"
    remedy = "Keep less for one key, or raise `state_row` in [limits] of the configuration."


class AccumulatorTooLarge(StateTooLarge):
    """An aggregate of one key and window keeps more rows than its limit."""

    code = "PEN-STA-009"
    remedy = (
        "Raise the limit of agg.collect, take shorter windows, or keep what is needed with agg.top_k. Nothing was "
        "committed, and the batch is re-run."
    )


class NondeterministicStep(StateError):
    """Two attempts of one task gave different results."""

    code = "PEN-STA-003"
    remedy = "Make the step depend on its rows only; use the batch's time instead of now()."


class IntegerOverflow(StateError, OverflowError):
    """A sum does not fit the type of its result."""

    code = "PEN-STA-004"
    remedy = (
        "Aggregate a wider type: CAST the column to decimal or double. The step keeps its sums; give the aggregate "
        "another name, or the sink another table, where the table has a column of the narrow type."
    )


class SegmentExists(StateError, FileExistsError):
    """A state file of that name exists already."""

    code = "PEN-STA-005"
    remedy = "Report this: every attempt of a task writes under a name of its own. Nothing was overwritten."


class NoState(StateError, LookupError):
    """The function called get() for a key without state."""

    code = "PEN-STA-006"
    remedy = "Ask state.exists() first, or use state.get_or(default)."


class StateMisused(StateError, ValueError):
    """The function made an illegal call on its State."""

    code = "PEN-STA-007"
    remedy = "Correct the function: docs/operators/state.md says which calls are legal when."


class UserFunctionError(PenstockError):
    """A function or an expression of the job raised."""

    code = "PEN-OPR-001"
    remedy = "Correct it, or filter the rows that it cannot take. Nothing was committed, and the batch is re-run."


class WrongOutput(UserFunctionError, TypeError):
    """A state function returned rows that do not fit the declared columns."""

    code = "PEN-OPR-004"
    remedy = (
        "Return what the DDL of the step declares, or correct the DDL. With on_error=OnError.QUARANTINE the step "
        "quarantines such rows."
    )


class WrongTable(WrongOutput):
    """A map_batches function returned what does not fit its output."""

    code = "PEN-OPR-022"
    remedy = (
        "Return a pyarrow Table with the columns of output=, and with same_rows=True as many rows as it got. Or "
        "correct output=. Nothing was committed, and the batch is re-run."
    )


class WrongWindowOutput(WrongOutput):
    """A function over windows, or a custom aggregate, returned what does not fit its columns."""

    code = "PEN-OPR-028"
    remedy = (
        "Return what output= declares: a pyarrow Table, a list of dicts, or None for no rows. Or correct output=. "
        "Nothing was committed, and the batch is re-run."
    )


class NotAnInverse(UserFunctionError, ValueError):
    """The subtract of a custom aggregate does not undo its merge."""

    code = "PEN-OPR-029"
    remedy = (
        "Correct subtract, or leave it out: windows are then made without an inverse. Sums of floats have none. "
        "Nothing was committed, and the batch is re-run."
    )


class EventTimeMissing(WrongOutput):
    """A vectorised function emitted a row without event time to an event-time step."""

    code = "PEN-OPR-021"
    remedy = (
        "Have the function give each row its event time, or filter such rows after the step. If event_time= is a "
        "column of the output, on_error=OnError.QUARANTINE quarantines the input of the call."
    )


class TransformColumnsChanged(UserFunctionError):
    """A transform with per_batch=True gave other columns than it gave when the job started."""

    code = "PEN-OPR-023"
    remedy = (
        "Return the same columns, of the same types, in every batch. Nothing was committed, and the batch is re-run."
    )


class JobInTransform(UserFunctionError):
    """A transform ran a Spark job of its own: it counted, collected or wrote rows."""

    code = "PEN-OPR-024"
    remedy = (
        "Return a DataFrame, and leave it to the batch to run it. What the function needs to know of rows belongs "
        "into a step with state, what it writes into a sink. Nothing was committed."
    )


class TableVersionGone(PenstockError, LookupError):
    """The version of a table that a batch of a join_static uses cannot be read any more."""

    code = "PEN-OPR-031"
    remedy = (
        "Put the version's files back, or give the join another name=: it then begins with the newest version. A batch "
        "that is fixed and not committed is run with that one, too. Let VACUUM keep files longer."
    )


class TableRefused(PenstockError, ValueError):
    """A new version of a table cannot be joined: it is too large, or its columns are others."""

    code = "PEN-OPR-032"
    remedy = (
        "Give join_static a function that selects, casts and filters, or restore the table to an earlier version. Or "
        "start the job again, with steps that fit: it then has the columns of the newest version. A large table is "
        "read as a stream instead, by DeltaTable and join_as_of. Nothing was committed."
    )


class UnfitValue(UserFunctionError, ValueError):
    """A row for a state function has a value without a Python object, such as a timestamp beyond the year 9999."""

    code = "PEN-OPR-020"
    remedy = (
        "Filter such rows or CAST the column before the step, or give the step on_error=OnError.QUARANTINE and its "
        "quarantine a sink. Nothing was committed, and the batch is re-run."
    )


class WrongTriggerResult(UserFunctionError, TypeError):
    """A trigger or an evictor of the job returned what is no decision."""

    code = "PEN-OPR-037"
    remedy = (
        "Return TriggerResult.CONTINUE, FIRE or FIRE_AND_PURGE from judge, None or a Wake with aware datetimes from "
        "due, and a boolean for each row from keep of an evictor. Nothing was committed, and the batch is re-run."
    )


class UnfitTriggerState(UserFunctionError, TypeError):
    """A trigger of the job left a state that cannot be kept as JSON."""

    code = "PEN-OPR-038"
    remedy = (
        "Keep None, bool, int, float, str, and lists and dicts of these in the state; the keys of dicts are str. "
        "Nothing was committed, and the batch is re-run."
    )


class WindowKeyLost(StateError, LookupError):
    """A key leaves a window of batch time that holds no value of it."""

    code = "PEN-OPR-033"
    remedy = (
        "Do equal keys hash equally? Where the state was edited, give each key of a batch a row of the newest window, "
        "or leave out both. Restore a kept batch otherwise."
    )


class NotInverse(UserFunctionError, ValueError):
    """The inverse of a window's function does not undo it: the rows of a key reduce to another value."""

    code = "PEN-OPR-034"
    remedy = (
        "For all values that the function makes, inverse(fn(a, b), a) is b. Correct the inverse, or leave it out: "
        "windows are then reduced from all their rows."
    )


class RequeueRefused(PenstockError, ValueError):
    """A request to send quarantined rows through again that no driver can carry out."""

    code = "PEN-OPR-025"
    remedy = (
        "Name a source of the job whose quarantine is written to a Delta table as it is: "
        "job.quarantine(NAME).write(…, Delta(path)), and with --from-batch one of its batches. "
        "Airflow's form calls that From batch. Then ask again."
    )


class ComputeFailed(PenstockError, RuntimeError):
    """The Spark job of a batch failed, and not because of the job's code."""

    code = "PEN-OPR-002"
    remedy = "Nothing was committed. Read the cause; a retry re-runs the same batch."
    exit_code = EXIT_RETRY


class EngineGone(PenstockError, RuntimeError):
    """Spark's JVM died."""

    code = "PEN-OPR-003"
    remedy = "Start again; give the driver more memory if it ran out."
    exit_code = EXIT_RETRY
