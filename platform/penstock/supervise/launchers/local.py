"""Run drivers as processes of this machine, each in a session of its own, so that they outlive the supervisor.

Those of a cluster, standalone, YARN or Kubernetes, are started by `spark-submit` in client mode (decision 34). So they
are processes of this machine as well, and only their executors run on the cluster. It ends the executors of a killed
driver itself, because they do not outlive the connection to it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from penstock.config.references import resolved
from penstock.config.settings import Settings
from penstock.config.values import is_local
from penstock.errors import (
    BlockDamaged,
    BlocksGone,
    CannotRestore,
    CheckpointCorrupt,
    CheckpointMoved,
    CheckpointPartial,
    CommitUnknown,
    EnvironmentUnfit,
    FormatTooNew,
    FormerCheckpoint,
    GateStopped,
    LogGap,
    MetadataDamaged,
    MetadataMissing,
    MoveUnfinished,
    PartitionsChanged,
    PenstockError,
    SinkBusy,
    SinkUnavailable,
    SourceUnavailable,
    StateMissing,
    StepsChanged,
    StorageFull,
    StorageUnavailable,
)
from penstock.runtime.process.os_processes import (
    argv_of,
    environment_of,
    kill_session,
    leaders,
    pid_namespace,
    process_runs,
    process_start,
)
from penstock.runtime.process.project import Project
from penstock.runtime.spark.secrets import properties_text
from penstock.runtime.spark.session import is_nowhere, session_settings
from penstock.supervise.autostart import without_airflow
from penstock.supervise.launcher import Handle, LaunchOrder, run_words
from penstock.supervise.machine import Exit, Life, Seen
from penstock.supervise.stream import DriverSlot

__all__ = ["LocalLauncher", "end_of", "events_of", "log_files", "read_exit", "submit_environment", "submit_words"]

_STORAGE = tuple(
    error.code
    for error in (StorageFull, StorageUnavailable, CommitUnknown, SourceUnavailable, SinkUnavailable, SinkBusy)
)
"""Errors of a server that is away: they pause a stream and spend none of its failures."""
_OF_CHECKPOINT = (
    *(CheckpointCorrupt, StateMissing, LogGap, CheckpointPartial, FormerCheckpoint, FormatTooNew),
    *(MetadataMissing, MetadataDamaged, CheckpointMoved, MoveUnfinished, BlocksGone, BlockDamaged),
)
_JUDGED = tuple(error.code for error in (GateStopped, CannotRestore, *_OF_CHECKPOINT))
"""Errors that no other version of the code mends: those of a gate, of the start, and of what any version reads first.

Tables and inputs are named by the code, so that an older version may have others.
"""
_UNFIT = tuple(error.code for error in (PartitionsChanged, StepsChanged))
"""Errors of a state that is not that of the code, or of the options of the start."""
_IN_COPY = re.compile(r"""[^\s()'":]*_versions/[0-9a-f]{12}/""")
"""The beginning of a path into one of the copies that `versions` makes."""
_DYING = 20.0
"""Seconds that killed processes have to be gone."""
_TAIL = 64 * 2**10
"""Bytes at the end of a driver's events that are searched for its last one."""
_KEPT_LOGS = 20
_SCRATCH = "penstock-driver-"
_SIGNALLED = 128  # a shell exits with 128 plus the number of the signal that ended its child


class LocalLauncher:
    """Start `penstock run` here; what it says goes to `<logs>/<generation>.jsonl`, what it complains of to `.log`.

    `hidden` are environment variables that drivers do not get: secrets of the supervisor's own. Those of Airflow they
    never get.
    """

    def __init__(self, *, hidden: Collection[str] = ()) -> None:
        self._hidden = frozenset(hidden)
        self._host = socket.gethostname()
        self._namespace = pid_namespace()
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def launch(self, order: LaunchOrder) -> Handle:
        """Start the driver."""
        order.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        events, errors = log_files(order.logs, order.stream.generation)
        scratch = tempfile.mkdtemp(prefix=_SCRATCH)
        try:
            return self._started(order, events, errors, scratch)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise

    def _started(self, order: LaunchOrder, events: Path, errors: Path, scratch: str) -> Handle:
        words, environment = _program(order, Path(scratch))
        with events.open("ab") as out, errors.open("ab") as err:
            for suffix in (".jsonl", ".log"):
                for path in sorted(order.logs.glob(f"*{suffix}"))[:-_KEPT_LOGS]:
                    path.unlink(missing_ok=True)
            child = subprocess.Popen(  # noqa: S603 - our own program, and words that were checked
                words,
                cwd=order.project,
                env={**{k: v for k, v in without_airflow(os.environ).items() if k not in self._hidden}, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._children[child.pid] = child
        return self._handle(child.pid, scratch)

    def look(self, job: str, slot: DriverSlot, logs: Path) -> Seen:
        """Return whether the driver's process runs."""
        if not self._is_here({"host": slot.host} if slot.handle is None else slot.handle):
            # Its process is out of sight; all machines see the folder in which it logs how it ends.
            ending = None if slot.foreign else read_exit(logs, slot.generation, None)
            return Seen(Life.UNKNOWN) if ending in (None, Exit()) else Seen(Life.GONE, ending)
        if slot.handle is None:
            handle = self._find(job, slot.generation, logs.parent.parent)
            if handle is None:
                return Seen(Life.GONE, Exit(error="it was never started"))
            return Seen(Life.RUNS, handle=handle)
        pid, start = int(str(slot.handle["pid"])), str(slot.handle["start"])
        child = self._children.get(pid)
        if (child is None or child.poll() is None) and process_runs(pid, start):
            return Seen(Life.RUNS)
        self._children.pop(pid, None)
        code = child.poll() if child is not None else None  # it may have ended between the two questions
        return Seen(Life.GONE, None if slot.foreign else read_exit(logs, slot.generation, code))

    def kill(self, handle: Handle) -> bool:
        """End all processes of the driver's session, and delete what Spark has left in its temporary folder."""
        if not self._is_here(handle):
            return False
        kill_session(int(str(handle["pid"])), str(handle["start"]), within=_DYING)
        scratch = Path(str(handle.get("scratch", "")))
        # Only what a launcher can have made: the record may have been written by somebody else.
        if scratch.parent == Path(tempfile.gettempdir()) and scratch.name.startswith(_SCRATCH):
            shutil.rmtree(scratch, ignore_errors=True)
        return True

    def _handle(self, pid: int, scratch: str) -> Handle:
        place: Handle = {"host": self._host, "namespace": self._namespace}
        return {**place, "pid": pid, "start": process_start(pid), "scratch": scratch}

    def _is_here(self, handle: Handle) -> bool:
        """Return whether the process table that one sees here tells of a handle's process.

        Containers may have one host name, and different processes under one number.
        """
        return handle.get("host") == self._host and handle.get("namespace", "") in ("", self._namespace)

    def _find(self, job: str, generation: int, root: Path) -> Handle | None:
        """Return the driver of a generation that was started and whose start was not recorded.

        Other projects of this machine may have a job of that name: the copy of its code says which root it is of.
        """
        for pid in leaders():
            words = argv_of(pid)
            ours = any(Path(code).is_relative_to(root) for code in _behind(words, "--code"))
            if ours and job in words and str(generation) in _behind(words, "--generation"):
                scratch = environment_of(pid).get("TMPDIR", "")
                return self._handle(pid, scratch)
        return None


def _program(order: LaunchOrder, scratch: Path) -> tuple[list[str], dict[str, str]]:
    """Return the words that start a driver, and what its environment has beside ours.

    Settings that cannot be read, or lead nowhere, are the driver's to tell: it starts, and says where and why.
    """
    options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={scratch}".strip()
    # Spark's workers are to be the interpreter of the driver. What Spark leaves in temporary folders when it is killed,
    # shuffle files above all, is to be in one that can be deleted.
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "TMPDIR": str(scratch),
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_SUBMIT_OPTS": options,
    }
    try:
        settings = Project(order.project, order.code).settings(order.job)
    except PenstockError:
        settings = None
    if settings is None or is_local(settings.spark.master) or is_nowhere(settings.spark.master):
        return [sys.executable, "-P", "-m", "penstock", *run_words(order)], environment
    return submit_words(order, settings, scratch), environment | submit_environment()


def log_files(logs: Path, generation: int) -> tuple[Path, Path]:
    """Return where the driver of a generation writes its events and its complaints."""
    return logs / f"{generation:06d}.jsonl", logs / f"{generation:06d}.log"


def read_exit(logs: Path, generation: int, code: int | None) -> Exit:
    """Return how a driver ended, from its last events and, where it was our child, its exit code.

    A driver that was killed said nothing; one whose parent was another supervisor has said its code itself.
    """
    events, errors = log_files(logs, generation)
    for event in reversed(list(events_of(end_of(events, _TAIL)))):
        if event.get("event") == "run.ended":
            return Exit(code=0, finished=event.get("ending") == "finished")
        if event.get("event") == "run.failed":
            code_of_error, exit_code = str(event.get("code")), event.get("exit_code")
            return Exit(
                code=exit_code if isinstance(exit_code, int) else None,
                error=_told(event),
                storage=code_of_error in _STORAGE,
                judged=code_of_error in _JUDGED,
                unfit=code_of_error in _UNFIT,
            )
    if code is None or code < 0 or code > _SIGNALLED:  # spark-submit tells of a signal to its child as a shell does
        return Exit()
    return Exit(code=code, error=_last_line(errors))


def _told(event: dict[str, Any]) -> str:
    """Return the error of a driver as a person needs it who sees no log: with its remedy, and the project's files.

    The driver names lines of its copy of the code, and a mended copy would mend nothing.
    """
    place = f" ({event['where']})" if event.get("where") else ""
    remedy = f". {event['remedy']}" if event.get("remedy") else ""
    return _IN_COPY.sub("", f"{event.get('code')} {event.get('what')}{place}{remedy}")


def end_of(path: Path, most: int) -> bytes:
    """Return the last bytes of a driver's log, at most so many; none where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - most))
            return file.read(most)
    except OSError:
        return b""


def events_of(output: bytes) -> Iterator[dict[str, Any]]:
    """Yield the events among the lines that a driver has written; Java and others write there as well."""
    for line in output.decode("utf-8", "replace").splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):  # what a job prints may be anything
            continue
        if isinstance(event, dict):
            yield event


def _last_line(path: Path) -> str | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.strip() for line in reversed(lines) if line.strip()), None)


def _behind(words: list[str], name: str) -> list[str]:
    return [value for known, value in pairwise(words) if known == name]


def submit_words(order: LaunchOrder, settings: Settings, scratch: Path) -> list[str]:
    """Return the words that submit the driver of an order; its settings are written to a file in `scratch`.

    Only its owner can read the file, whereas the words of a process are seen by everybody.
    """
    project = Project(order.project, order.code)
    chosen = session_settings(
        master=settings.spark.master,
        jars=project.jars,
        settings=resolved(settings.spark.conf, project.root),
        modules=project.modules,
    )
    chosen |= {"spark.master": settings.spark.master, "spark.app.name": f"penstock {order.job}"}
    # The driver is run by our own interpreter. Executors have theirs at the same path, if nothing else is said.
    chosen |= {"spark.pyspark.driver.python": sys.executable}
    chosen.setdefault("spark.pyspark.python", sys.executable)
    file = scratch / "spark.properties"
    file.touch(mode=0o600)
    file.write_text(properties_text(chosen), encoding="utf-8")
    return [
        *(str(_spark() / "bin" / "spark-submit"), "--deploy-mode", "client"),
        *("--properties-file", str(file), "--load-spark-defaults"),
        str(Path(__file__).parents[2] / "__main__.py"),
        *run_words(order),
        *("--logs", str(order.logs)),
    ]


def submit_environment() -> dict[str, str]:
    """Return what spark-submit needs beside a driver's environment."""
    # Safe path: the folder of __main__.py holds penstock's own modules, which are no top-level names.
    return {"SPARK_HOME": str(_spark()), "PYTHONSAFEPATH": "1"}


def _spark() -> Path:
    """Return the folder of the Spark that pip has installed: a driver's Python and its JVM must be of one version."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnvironmentUnfit("pyspark is not installed")
    return Path(spec.origin).parent
