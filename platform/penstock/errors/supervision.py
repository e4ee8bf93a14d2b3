"""Name what can go wrong when a stream is commanded."""

from __future__ import annotations

from penstock.errors.root import EXIT_RETRY, PenstockError


class SupervisionError(PenstockError):
    code = "PEN-SUP-000"
    remedy = "Look at `penstock streams`."


class CommandRefused(SupervisionError, ValueError):
    """What was asked does not go with what the stream is at; nothing was changed."""

    code = "PEN-SUP-001"
    remedy = "Look at `penstock streams`, and ask for what its state allows."


class StreamFailed(SupervisionError, RuntimeError):
    """The stream has come to another end than was waited for: it was given up, or somebody ended it."""

    code = "PEN-SUP-002"
    remedy = (
        "Correct what the message names, then `penstock start JOB`; what drivers said is in _logs of the root, or for "
        "one on HDFS in the supervisor's cache."
    )


class SupervisorAbsent(SupervisionError, RuntimeError):
    """Nobody carries out what is asked."""

    code = "PEN-SUP-003"
    remedy = "Start one with `penstock supervise`, on the machine where drivers are to run."
    exit_code = EXIT_RETRY


class RootMissing(SupervisionError, FileNotFoundError):
    """The folder of checkpoints and commands is not there."""

    code = "PEN-SUP-004"
    remedy = (
        "Mount it on this machine, or correct the URL. Where there never was one, `penstock supervise` and "
        "`penstock run` make it."
    )
    exit_code = EXIT_RETRY
