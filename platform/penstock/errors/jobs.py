"""Name what is wrong with a job, its configuration, or the machine, or what goes wrong when its stream is commanded."""

from __future__ import annotations

from penstock.errors.root import EXIT_RETRY, PenstockError


class JobError(PenstockError, ValueError):
    """The job as written cannot be built."""

    code = "PEN-JOB-001"
    remedy = "Correct the job at the line named."


class BadName(JobError):
    """A name of the job breaks the rules for names."""

    code = "PEN-JOB-002"
    remedy = "Use a lower-case letter, then up to 62 letters, digits or underscores."


class DuplicateName(JobError):
    """Two steps, sources, sinks or side outputs have one name."""

    code = "PEN-JOB-003"
    remedy = "Give each step, source, sink and side stream a name of its own: state and offsets live under it."


class MissingLatePolicy(JobError):
    """A window does not say what happens to late rows."""

    code = "PEN-JOB-004"
    remedy = "Choose with .drop_late(), .late_to(name) or .update_late(…): lateness is never a silent default."


class BadExpression(JobError):
    """Spark cannot analyse a column, a type or a piece of SQL."""

    code = "PEN-JOB-005"
    remedy = "Correct the expression at the line named."


class KeyTypesDiffer(BadExpression):
    """The streams that a step joins have keys of different types."""

    code = "PEN-OPR-030"
    remedy = (
        "Cast the keys of one stream to the types of the other before the step, as in with_columns(id='CAST(id AS "
        "STRING)'). Penstock casts no keys by itself, because equal keys need one hash."
    )


class UnknownName(JobError, LookupError):
    """A name refers to nothing in the job."""

    code = "PEN-JOB-006"
    remedy = "Use one of the names that exist; the message lists them."


class UnknownMethod(JobError, AttributeError):
    """A stream, or a window of one, has no method of this name."""

    code = "PEN-JOB-041"
    remedy = (
        "Call one of the methods that the message lists; what it advises is what other systems have under the name."
    )


class MissingSink(JobError):
    """A stream of the job leads to no sink."""

    code = "PEN-JOB-008"
    remedy = "Write the stream to a sink: rows may not vanish."


class UnboundedState(JobError):
    """No timeout bounds the state of a step."""

    code = "PEN-JOB-010"
    remedy = "Set a timeout such as idle(hours(1)), or unbounded=True: the state then grows with the keys."


class UnboundedWindow(UnboundedState):
    """A global window keeps all its rows: its trigger never fires, or leaves them where they are."""

    code = "PEN-JOB-028"
    remedy = (
        "With a trigger that fires, drop the rows that were emitted, as by Purging(Every(count(100))), or evict all "
        "but some, as by KeepLast(100). With any trigger, also AtEnd(), GlobalWindow(ttl=hours(1)) forgets idle keys, "
        "and under GlobalWindow(unbounded=True) the state grows with the rows."
    )


class NoEventTime(JobError):
    """An event-time step reads rows whose event time is not defined."""

    code = "PEN-JOB-020"
    remedy = (
        "Give map_with_state_arrow an event_time=, a column or expression of its output. If it returns a row for "
        "each input row, in their order, use same_rows=True instead, as also of map_batches."
    )


class TableUnfit(JobError):
    """The table of a join_static does not fit the stream: by a missing key, a type of one, or a name of both."""

    code = "PEN-JOB-025"
    remedy = (
        "Cast or rename the columns of the stream with select before the join, or give join_static a function that "
        "returns a DataFrame with the columns as they are wanted."
    )


class JoinUnbounded(JobError):
    """A join of two streams has no bound in event time."""

    code = "PEN-JOB-024"
    remedy = (
        "Give the join within=(minutes(-5), minutes(5)), the least and the greatest event time of the right row minus "
        "that of the left row. Without bounds it would keep all rows of both streams."
    )


class RevisionsMisread(JobError):
    """A step or sink would count rows twice, or lose some, of a window that is emitted more than once."""

    code = "PEN-JOB-021"
    remedy = (
        "Let the window be discarding(), so that its panes add up, or write it to a table with mode=UPSERT and read "
        "that. The keys of a sink need the bounds of the window among them. A deduplicate needs '_revision' in by=, "
        "and a within= that is longer than that of update_late."
    )


class RetractionsLost(JobError):
    """A sink would keep rows of sessions that other sessions have replaced."""

    code = "PEN-JOB-023"
    remedy = (
        "Write the sessions as the window emits them, with _pane, to a sink with mode=UPSERT, and filter and rename "
        "in what reads the table. Or write them to a sink that appends, or add '_revision' to the keys."
    )


class IntervalUnfit(JobError):
    """The interval between batches does not suit a window of batch time, or could change (SEMANTICS 4.1)."""

    code = "PEN-JOB-026"
    remedy = (
        "Give the job an interval, as Job(interval=seconds(1)) or by `trigger` of its configuration. Make length and "
        "slide of its batch windows multiples of that, and leave `longest_interval` out."
    )


class JobNotFound(JobError, LookupError):
    """No module in jobs/ has the name of the job."""

    code = "PEN-JOB-009"
    remedy = "Look at the modules in jobs/; run the command from the project, or pass --project."


class ConfigError(PenstockError, ValueError):
    """A key or value of the configuration is wrong."""

    code = "PEN-CNF-001"
    remedy = "Correct what is named: a line of a file, or a variable of the environment."


class FilesInTheWay(PenstockError, FileExistsError):
    """Files of a new job would be written over files that are there."""

    code = "PEN-CNF-002"
    remedy = "Choose another name for the job, or another folder with --into."


class EnvironmentUnfit(PenstockError, RuntimeError):
    """Java, jars or packages are missing or too old."""

    code = "PEN-ENV-001"
    remedy = "Mend what is named. The lines of `penstock doctor` say how, and in a clone `make setup` installs all."


class DeltaJarsMissing(EnvironmentUnfit):
    """A sink needs delta-spark, whose jars are no part of the package."""

    code = "PEN-ENV-003"
    remedy = (
        "Run `penstock doctor`, which fetches them into .jars of the project, or write to a table without "
        "partition_by and constraints."
    )


class ClusterUnavailable(PenstockError, ConnectionError):
    """The master of the cluster does not answer, or assigns no executor."""

    code = "PEN-ENV-002"
    remedy = (
        "Check that the master named in [spark] runs and has free cores; `spark.cores.max` limits what one job "
        "takes of a standalone cluster. A later start resumes."
    )
    exit_code = EXIT_RETRY


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


class RolledBack(SupervisionError, RuntimeError):
    """The code of a start failed, and an older version runs, or ran, in its place."""

    code = "PEN-SUP-040"
    remedy = "Correct what the message names, then `penstock restart JOB`. Until then the older version runs."


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


class HistoryTooShort(PenstockError, LookupError):
    """The log of a job has too few batches to fit what a batch costs."""

    code = "PEN-RAT-001"
    remedy = "Run the job until it has three batches with rows, or simulate a made-up job with --metrics plant."
