"""Find the project and load a job of it: `jobs/JOB.py` with `build(conf) -> Job`, and its settings."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.checkpoint.log.queries import find_restore_by_command
from penstock.checkpoint.log.recovery import Damage, Recovered, partitions_of, recover
from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.config.schema import JobSections
from penstock.config.settings import JobConf, Settings, load_settings
from penstock.config.toml_reader import closest, shown_path
from penstock.errors import ConfigError, JobError, JobNotFound, PenstockError
from penstock.graph.job import Job
from penstock.graph.names import is_name
from penstock.graph.partitions import MOST_PARTITIONS, defaulting_to, usable_cores
from penstock.runtime.restore.target import LAST, RestoreTarget

__all__ = ["LoadedJob", "Project", "code_version", "find_project", "partition_chooser", "spark_cores"]

_OF_A_CLUSTER = 8
"""Where nothing says how many cores a cluster gives: two small machines."""
MARK = Path("conf", "penstock.toml")


def partition_chooser(
    settings: Settings, folder: CheckpointFolder, start: RestoreTarget = LAST, command: str | None = None
) -> Callable[[str], int]:
    """Return what chooses the state partitions of a step by its name; `folder` is the job's checkpoint.

    It is the number of `--partitions`, otherwise the number that the step has in what the start restores, or in the
    checkpoint, otherwise the number of Spark's cores. A command restores once, so a repeated one takes the number in
    the checkpoint. The log is read once, and only if a step of the job needs it.
    A log that cannot be read is no error here: a start reads it again, and reports what is wrong with it.
    """

    @cache
    def recorded() -> Mapping[str, int]:
        with suppress(PenstockError):
            log = job_log(folder, identified=False)
            if log is not None:
                recovered = recover(log, Damage.LIST)
                # Where the newest entries are lost, a restore goes on from one of the others.
                others = (partitions_of(log, kept) for kept in reversed(recovered.kept))
                counts = filter(None, chain([recovered.partitions], others))
                return {**next(counts, {}), **_gone_back_to(recovered, folder, start, command)}
        return {}

    def choose(step: str) -> int:
        if start.partitions is not None:
            return start.partitions
        return recorded().get(step) or spark_cores(settings.spark.master, settings.spark.conf)

    return choose


def _gone_back_to(
    recovered: Recovered, folder: CheckpointFolder, start: RestoreTarget, command: str | None
) -> Mapping[str, int]:
    """Return the partitions of the state that a start restores; a snapshot can be written in any number of them."""
    if start.snapshot is not None or not start.goes_back:
        return {}
    if command is not None and find_restore_by_command(recovered.log, command) is not None:
        return {}
    with suppress(PenstockError):
        return start.resolve(recovered, folder).partitions
    return {}


def spark_cores(master: str, conf: Mapping[str, str]) -> int:
    """Return how many cores a session of these settings runs tasks on, from 1 to 4096, as far as they tell."""
    local = re.match(r"local(?:-cluster)?(?:\[(?P<said>[^\]]*)\])?", master)
    if local is None:
        cores = _said(conf, "spark.default.parallelism") or _said(conf, "spark.cores.max") or _of_executors(conf)
    elif master.startswith("local-cluster"):
        workers, each = (int(number) for number in local["said"].split(",")[:2])
        cores = workers * each
    else:
        threads = (local["said"] or "1").split(",")[0].strip()
        cores = usable_cores() if threads == "*" else int(threads)
    return max(1, min(cores, MOST_PARTITIONS))


def _of_executors(conf: Mapping[str, str]) -> int:
    executors = _said(conf, "spark.executor.instances")
    return executors * (_said(conf, "spark.executor.cores") or 1) if executors else _OF_A_CLUSTER


def _said(conf: Mapping[str, str], name: str) -> int:
    text = conf.get(name, "")
    return int(text) if text.isdecimal() else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedJob:
    """Hold a job, its settings, and the project it is of."""

    project: Project
    job: Job
    settings: Settings
    conf: JobConf


@dataclass(frozen=True, slots=True)
class Project:
    """Name a project's root: the folder with `conf/penstock.toml`.

    `code` is a folder with a copy of `jobs/` and `conf/` that is used instead of what is in the root now. Paths in the
    configuration are still relative to the root.
    """

    root: Path
    code: Path | None = None

    @property
    def quality(self) -> Path:
        """Return the folder of the suites."""
        return self._source / "conf" / "quality"

    @property
    def _source(self) -> Path:
        return self.code or self.root

    @property
    def modules(self) -> list[Path]:
        """Return the folders that jobs import modules from, the first first."""
        return list(dict.fromkeys([self._source, self.root]))

    @property
    def jars(self) -> Path:
        """Return the folder that `make setup` fills for Spark."""
        return self.root / ".jars"

    def job_names(self) -> list[str]:
        """Return the names of the modules in `jobs/`; what has no job's name, such as an editor's lock, is none."""
        return sorted(p.stem for p in (self._source / "jobs").glob("*.py") if is_name(p.stem))

    def settings(self, name: str) -> Settings:
        """Return the settings of a job, without its code and its sources: for commands that only look.

        Raises JobNotFound for what is no job, and ConfigError.
        """
        self._module_path(name)
        return load_settings(self.root, name, code=self.code, model=JobSections)[0]

    def load(
        self,
        name: str,
        *,
        start: RestoreTarget = LAST,
        command: str | None = None,
        root: CheckpointFolder | None = None,
    ) -> LoadedJob:
        """Import `jobs/NAME.py` and build its job.

        Keyed steps whose code names no number of state partitions get one by `partition_chooser`. The checkpoint that
        it looks at is below `root`, by default the configured one. `command` is the id under which a restore by
        `start` may have been done before.

        Raises JobNotFound, ConfigError, and JobError at the user's line for code that cannot be imported or built.
        """
        path = self._module_path(name)
        settings, conf = load_settings(self.root, name, code=self.code)
        build = getattr(_imported(self.modules, name, path), "build", None)
        if not callable(build):
            raise JobError("the module has no function build(conf) that returns a Job", where=shown_path(path))
        with defaulting_to(partition_chooser(settings, (root or settings.root) / name, start, command)):
            job = _at_users_line(path, lambda: build(conf))
        if not isinstance(job, Job):
            raise JobError(f"build(conf) returned {type(job).__name__}, not a Job", where=shown_path(path))
        if job.name != name:
            raise JobError(
                f"the job is named {job.name!r} and its module {name!r}: its checkpoint is found by the one name both "
                "must have",
                where=shown_path(path),
            )
        return LoadedJob(project=self, job=job, settings=settings, conf=conf)

    def _module_path(self, name: str) -> Path:
        # Also where it is only part of a path: the name comes from a command line or a trigger form (F61, F63).
        folder = self._source / "jobs"
        path = folder / f"{name}.py"
        if not is_name(name) or not path.is_file():
            raise JobNotFound(f"there is no job {name!r}: {closest(name, self.job_names())}", where=shown_path(folder))
        return path


def find_project(start: Path | None = None, *, given: Path | None = None, code: Path | None = None) -> Project:
    """Return the project of a folder, which is it or the nearest parent with `conf/penstock.toml`.

    `given` must be one itself, and `code` is as in Project. Raises ConfigError where there is none.
    """
    if code is not None and not (code / MARK).is_file():
        raise ConfigError(f"there is no {MARK} in the folder of the code", where=shown_path(code))
    folder = (given or start or Path.cwd()).resolve()
    candidates = (folder,) if given is not None else (folder, *folder.parents)
    root = next((candidate for candidate in candidates if (candidate / MARK).is_file()), None)
    if root is not None:
        return Project(root, code.resolve() if code is not None else None)
    if given is not None:
        raise ConfigError(f"there is no {MARK} in the folder", where=shown_path(folder))
    raise ConfigError(f"neither this folder nor one above it has a {MARK}", where=str(folder))


def code_version(project: Project, job: str) -> str:
    """Name the code and configuration that run: the commit, `dirty` where files differ from it, and a hash of conf.

    A copy of the code is named by its folder, which the supervisor names by its content.
    """
    if project.code is not None:
        return f"version.{project.code.name}"
    root, git = project.root, shutil.which("git")
    command = ["-C", str(root), "describe", "--always", "--dirty=-dirty", "--abbrev=12", "--exclude=*"]
    version = None
    if git is not None:
        version = subprocess.run([git, *command], capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    commit = version.stdout.strip() if version is not None and version.returncode == 0 else "no-git"
    conf = hashlib.sha256()
    for path in (root / MARK, root / "conf" / "jobs" / f"{job}.toml"):
        conf.update(path.read_bytes() if path.is_file() else b"")
    return f"{commit}+conf.{conf.hexdigest()[:8]}"


def _imported(folders: Iterable[Path], name: str, path: Path) -> ModuleType:
    """Import the job's module afresh under `jobs.NAME`, and let Spark's workers find it under that name."""
    wanted = [str(folder) for folder in folders]
    sys.path[:] = [*wanted, *(entry for entry in sys.path if entry not in wanted)]
    known = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry not in wanted]
    os.environ["PYTHONPATH"] = os.pathsep.join([*wanted, *known])
    full = f"jobs.{name}"
    spec = importlib.util.spec_from_file_location(full, path)
    if spec is None or spec.loader is None:
        raise JobError("the module cannot be imported", where=shown_path(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    loader = spec.loader
    try:
        _at_users_line(path, lambda: loader.exec_module(module))
    except BaseException:
        del sys.modules[full]
        raise
    return module


def _at_users_line(path: Path, call: Callable[[], Any]) -> Any:
    """Call into the job's module; what it raises becomes a JobError at the last of its lines that was reached."""
    try:
        return call()
    except PenstockError:
        raise
    except SyntaxError as why:
        file = Path(why.filename) if why.filename else path
        raise JobError(f"the module is not Python: {why.msg}", where=f"{shown_path(file)}:{why.lineno}") from why
    except Exception as why:
        frames = [f for f in traceback.extract_tb(why.__traceback__) if f.filename == str(path)]
        where = f"{shown_path(path)}:{frames[-1].lineno}" if frames else shown_path(path)
        raise JobError(f"the module raised {type(why).__name__}: {why}", where=where) from why
