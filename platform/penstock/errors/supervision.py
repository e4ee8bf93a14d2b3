"""Name what can go wrong when a stream is commanded."""

from __future__ import annotations

from penstock.errors.root import EXIT_RETRY, PenstockError


class SupervisionError(PenstockError):
    """Root of all errors of commands to streams."""

    code = "PEN-SUP-000"
    remedy = "Look at `penstock streams`."


class CommandRefused(SupervisionError, ValueError):
    """The state of the stream does not allow the command; nothing was changed."""

    code = "PEN-SUP-001"
    remedy = "Look at `penstock streams`, and request what the stream's state allows."


class StreamFailed(SupervisionError, RuntimeError):
    """The stream has ended otherwise than the command waits for: it failed, or somebody ended it."""

    code = "PEN-SUP-002"
    remedy = (
        "Correct what the message names, then `penstock start JOB`. The drivers' logs are in _logs of the root, or "
        "for a root on HDFS in the supervisor's cache."
    )


class SupervisorAbsent(SupervisionError, RuntimeError):
    """No supervisor carries out the command."""

    code = "PEN-SUP-003"
    remedy = "Start one with `penstock supervise`, on the machine where drivers are to run."
    exit_code = EXIT_RETRY


class RootMissing(SupervisionError, FileNotFoundError):
    """The folder of checkpoints and commands does not exist."""

    code = "PEN-SUP-004"
    remedy = (
        "Mount it on this machine, or correct the URL. If there never was one, `penstock supervise` and `penstock "
        "run` create it."
    )
    exit_code = EXIT_RETRY
