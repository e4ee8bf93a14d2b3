"""Name what is wrong with a job, its configuration, or the machine."""

from __future__ import annotations

from penstock.errors.root import EXIT_RETRY, PenstockError


class JobError(PenstockError, ValueError):
    """The job as written cannot be built."""

    code = "PEN-JOB-001"
    remedy = "Correct the job at the line named."


class BadName(JobError):
    code = "PEN-JOB-002"
    remedy = "Use a lower-case letter, then up to 62 letters, digits or underscores."


class DuplicateName(JobError):
    code = "PEN-JOB-003"
    remedy = "Give each step, source, sink and side stream a name of its own: state and offsets live under it."


class MissingLatePolicy(JobError):
    code = "PEN-JOB-004"
    remedy = "Choose with .drop_late() or .late_to(name): lateness is never a silent default."


class BadExpression(JobError):
    """Spark could not analyse a column, a type or a piece of SQL."""

    code = "PEN-JOB-005"
    remedy = "Correct the expression at the line named."


class UnknownName(JobError, LookupError):
    code = "PEN-JOB-006"
    remedy = "Use one of the names that exist; the message lists them."


class MissingSink(JobError):
    code = "PEN-JOB-008"
    remedy = "Write the stream to a sink: rows may not vanish."


class UnboundedState(JobError):
    """Nothing bounds the state of a step."""

    code = "PEN-JOB-010"
    remedy = "Give a timeout such as idle(hours(1)), or say unbounded=True: the state then grows with the keys."


class NoEventTime(JobError):
    """A step of event time reads rows of which nobody has said what event time they have."""

    code = "PEN-JOB-020"
    remedy = (
        "Give map_with_state_arrow an event_time=, a column or expression of its output; or same_rows=True, where it "
        "returns a row for each row it was given, in their order."
    )


class JobNotFound(JobError, LookupError):
    code = "PEN-JOB-009"
    remedy = "Look at the modules in jobs/; run the command from the project, or pass --project."


class ConfigError(PenstockError, ValueError):
    code = "PEN-CNF-001"
    remedy = "Correct what is named: a line of a file, or a variable of the environment."


class FilesInTheWay(PenstockError, FileExistsError):
    """Files of a new job would be written over files that are there."""

    code = "PEN-CNF-002"
    remedy = "Choose another name for the job, or another folder with --into."


class EnvironmentUnfit(PenstockError, RuntimeError):
    """Java, jars or packages are missing or too old."""

    code = "PEN-ENV-001"
    remedy = "Run `penstock doctor`, or in a clone of Penstock `make setup`: both say what is missing."


class DeltaJarsMissing(EnvironmentUnfit):
    """A sink needs delta-spark, whose jars are no part of the package."""

    code = "PEN-ENV-003"
    remedy = (
        "Run `penstock doctor`, which fetches them into .jars of the project, or write to a table without "
        "partition_by and constraints."
    )


class ClusterUnavailable(PenstockError, ConnectionError):
    """The master of the cluster does not answer, or gives no executor."""

    code = "PEN-ENV-002"
    remedy = (
        "See that the master named in [spark] runs and has cores that are free; `spark.cores.max` bounds what one job "
        "takes of a standalone cluster. A later start goes on."
    )
    exit_code = EXIT_RETRY
