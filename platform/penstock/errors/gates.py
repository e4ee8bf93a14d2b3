"""Name what can go wrong with suites, gates and held batches."""

from __future__ import annotations

from penstock.errors.root import PenstockError


class SuiteError(PenstockError, ValueError):
    """A suite cannot be compiled into the stream."""

    code = "PEN-QLT-001"
    remedy = "Remove the expectation named, or check it in a report instead."


class SuiteMalformed(SuiteError):
    """A suite is malformed: not JSON, an unknown or duplicate key, or a value of the wrong type."""

    code = "PEN-QLT-004"
    remedy = "Correct the suite at the place named; docs/quality.md shows one."


class SuiteNotFound(SuiteError, FileNotFoundError):
    """The suite of a check does not exist."""

    code = "PEN-QLT-005"
    remedy = "Put the suite at that path, or correct the name in the job."


class GateError(PenstockError, RuntimeError):
    """A gate raised an error and fails closed (SEMANTICS 11.8)."""

    code = "PEN-QLT-002"
    remedy = "Nothing was committed or published. Correct the cause and start again."


class GateStopped(PenstockError):
    """A gate with OnFail.STOP did not pass."""

    code = "PEN-QLT-003"
    remedy = "Change the suite and start again, or run with --gate N=publish, N=drop or N=hold."


class HeldDecided(PenstockError, ValueError):
    """A held batch was released or discarded before, or a restore has superseded it."""

    code = "PEN-QLT-006"
    remedy = "Look at `penstock held JOB list`: a batch is decided once."


class HeldCopied(PenstockError):
    """A sink shows the release of this held batch with the rows of a copy of the checkpoint (F31)."""

    code = "PEN-QLT-009"
    remedy = (
        "End the jobs of all copies but one. `penstock held JOB discard BATCH` then drops the rows that this "
        "checkpoint has of the batch, and counts them."
    )


class HeldNotFound(PenstockError, LookupError):
    """No batch of that number is held."""

    code = "PEN-QLT-007"
    remedy = "Choose one of the batches that the page of the stream, or `penstock held JOB list`, shows."


class ReportImpossible(PenstockError, RuntimeError):
    """A report cannot be made from the tables and suites of the job."""

    code = "PEN-QLT-008"
    remedy = "Correct what the message names; docs/quality.md says which tables and suites reports take."
