"""Read what is in force for a job, from the environment and the two files, and what a job is given of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.checkpoint.storage.hdfs_cache import is_url, root_of
from penstock.config.environment import from_environment, variable
from penstock.config.schema import AirflowDefaults, AirflowSection, JobFile, ProjectFile, ReplaySource
from penstock.config.toml_lines import KeyPath
from penstock.config.toml_reader import closest, line_of, read_model, shown_path
from penstock.config.values import is_local, parse_duration, parse_schedule, parse_size, parse_trigger
from penstock.errors import ConfigError, UnknownName
from penstock.graph.durations import Duration
from penstock.graph.names import is_name
from penstock.graph.schedules import Schedule
from penstock.graph.source_location import user_site
from penstock.time.triggers import Trigger

__all__ = [
    "JobConf",
    "ReportSettings",
    "Settings",
    "SuperviseSettings",
    "airflow_defaults",
    "checkpoint_root",
    "load_settings",
]

_ROOT = "checkpoints"
_AIRFLOW_KEYS = tuple(AirflowSection.model_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperviseSettings:
    """Hold how patient the supervisor is; `docs/configuration.md` says what each means."""

    backoff: Duration
    backoff_max: Duration
    failures_per_hour: int
    healthy_after: Duration
    progress_within: Duration
    start_within: Duration
    autostart: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """Hold how reports are made: from how many rows on Spark judges, how many windows at most, with which suites.

    `own` are the checks that the job's own file names suites for.
    """

    pandas_rows: int
    windows: int
    suites: Mapping[str, str]
    own: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Hold what is in force for one job: the environment, its own file, the project's, then what is built in.

    `deadline` and `takeover_after` are seconds, `state_limit` the bytes that a stateful step may keep,
    `state_row_limit` those of one key. `trigger` is
    None where neither file has one, and `trigger_at` is where the one that counts is written; `every`, how often data
    checkpoints are made, likewise. `recover_within` is seconds, `snapshots` how many of them stay. `schedule` is when
    Airflow runs the job by itself, each time until what is there is done; `airflow` is how its tasks run. `shared` says
    that all machines of the cluster see the root. Of a root on HDFS, `root` is the folder of this machine that stands
    for it.
    """

    root: Path
    shared: bool
    keep: int
    every: Schedule | None
    every_at: str | None
    recover_within: float
    snapshots: int
    master: str
    spark_conf: Mapping[str, str]
    trigger: Trigger | None
    trigger_at: str | None
    deadline: float
    clock_patience: int
    takeover_after: float
    state_limit: int | None
    state_row_limit: int
    rows_limit: int | None
    supervise: SuperviseSettings
    reports: ReportSettings
    schedule: str | None
    airflow: AirflowDefaults


@dataclass(kw_only=True)
class JobConf:
    """Give a job its sources and tables by name: what `build(conf)` is called with.

    `used` collects the keys that were asked for.
    """

    job: str
    root: Path
    file: Path
    sources: Mapping[str, ReplaySource]
    tables: Mapping[str, str]
    lines: Mapping[KeyPath, int]
    used: set[KeyPath] = field(default_factory=set)

    def source(self, name: str) -> Any:
        """Return the source of `[sources.NAME]`.

        Raises UnknownName at the job's line, and ConfigError at the line of a path where no file is.
        """
        section = self._section(name)
        self.used.add(("sources", name))
        path = self.root / section.path
        if not path.is_file():
            raise ConfigError(f"there is no file {section.path!r}", where=self._where("sources", name, "path"))
        if path.suffix not in (".parquet", ".csv"):
            raise ConfigError(
                f"{section.path!r} is neither .parquet nor .csv", where=self._where("sources", name, "path")
            )
        return section.source(path)

    def table(self, name: str) -> Path:
        """Return the path of a table of `[tables]`; raises UnknownName at the job's line."""
        if name not in self.tables:
            raise self._unknown("tables", name, list(self.tables))
        self.used.add(("tables", name))
        return self.root / self.tables[name]

    def path_of(self, named: str) -> str:
        """Return the path of a table that `[tables]` names, or else of one that is named by its path.

        A bare name is none of a folder, because a form takes names alone; raises UnknownName, with the way to say it.
        """
        if named not in self.tables and is_name(named):
            known = closest(named, list(self.tables))
            raise UnknownName(f"[tables] has no table {named!r}; {known}. A folder is written as ./{named}")
        return str(self.root / self.tables.get(named, named))

    def unused(self) -> list[str]:
        """Return the sources and tables that the job never asked for, as the file names them."""
        named = [("sources", n) for n in self.sources] + [("tables", n) for n in self.tables]
        return [".".join(key) for key in named if key not in self.used]

    def _section(self, name: str) -> ReplaySource:
        if name not in self.sources:
            raise self._unknown("sources", name, list(self.sources))
        return self.sources[name]

    def _unknown(self, table: str, name: str, known: list[str]) -> UnknownName:
        if not self.file.is_file():
            what = f"the job asks for {table[:-1]} {name!r}, and there is no {shown_path(self.file)}"
        else:
            what = f"{shown_path(self.file)} has no {table[:-1]} {name!r}; {closest(name, known)}"
        return UnknownName(what, where=str(user_site()))

    def _where(self, *key: str) -> str:
        line = line_of(dict(self.lines), key)
        return f"{shown_path(self.file)}:{line}" if line else shown_path(self.file)


def _around() -> ProjectFile:
    """Return what the environment says, which is nothing of Airflow's tasks."""
    return from_environment(ProjectFile, os.environ, refused=[variable("airflow", key) for key in _AIRFLOW_KEYS])


def checkpoint_root(root: Path) -> Path:
    """Return the checkpoint root of jobs that do not name their own; raises ConfigError."""
    project, _ = read_model(ProjectFile, root / "conf" / "penstock.toml")
    around = _around()
    said = around.checkpoint.root or project.checkpoint.root or _ROOT
    return root_of(said, project=root, cache=around.checkpoint.cache or project.checkpoint.cache)


def airflow_defaults(root: Path) -> AirflowDefaults:
    """Return how the tasks of DAGs run that are of no one job; raises ConfigError."""
    return read_model(ProjectFile, root / "conf" / "penstock.toml")[0].airflow


def _root(said: str, project: Path, cache: str | None, where: str | None) -> Path:
    try:
        return root_of(said, project=project, cache=cache)
    except ConfigError as why:
        raise ConfigError(why.what, where=where) from why


def load_settings(root: Path, job: str, *, code: Path | None = None) -> tuple[Settings, JobConf]:
    """Read the environment, the job's file, which may be absent, and the project's; what stands first counts.

    `code` is a folder with another `conf/`; paths are relative to the project in any case.
    Raises ConfigError with file and line, or with the variable; also where executors could not see the checkpoint.
    """
    conf_folder = (code or root) / "conf"
    project_path, job_path = conf_folder / "penstock.toml", conf_folder / "jobs" / f"{job}.toml"
    project, project_lines = read_model(ProjectFile, project_path)
    own, lines = read_model(JobFile, job_path) if job_path.exists() else (JobFile(), {})
    around = _around()

    def said(section: str, key: str, default: Any) -> Any:
        for file in (around, own, project):
            value = getattr(getattr(file, section), key)
            if value is not None:
                return value
        return default

    def said_at(section: str, key: str) -> str | None:
        if getattr(getattr(around, section), key) is not None:
            return f"the environment variable {variable(section, key)}"
        for file, path, known in ((own, job_path, lines), (project, project_path, project_lines)):
            if getattr(getattr(file, section), key) is not None:
                return f"{shown_path(path)}:{line_of(known, (section, key))}"
        return None

    master, shared = said("spark", "master", "local[*]"), bool(said("checkpoint", "shared", None))
    checkpoints = said("checkpoint", "root", _ROOT)
    if not (shared or is_local(master) or is_url(checkpoints)):
        raise ConfigError(
            f"executors of {master} run on other machines and must see the checkpoint: keep its root on HDFS, or "
            "where all of them see it under the same path and say `shared = true` in [checkpoint], or run with a local "
            "master",
            where=said_at("spark", "master"),
        )
    trigger, every = said("run", "trigger", None), said("checkpoint", "every", None)
    limit, row_limit = said("limits", "state", None), said("limits", "state_row", "16 MiB")
    settings = Settings(
        root=_root(checkpoints, root, said("checkpoint", "cache", None), said_at("checkpoint", "root")),
        shared=shared,
        keep=said("checkpoint", "keep", 20),
        every=None if every is None else parse_schedule(every),
        every_at=said_at("checkpoint", "every"),
        recover_within=parse_duration(said("checkpoint", "recover_within", "1 minutes")).micros / 1_000_000,
        snapshots=said("checkpoint", "snapshots", 10),
        master=master,
        spark_conf={**project.spark.conf, **own.spark.conf},
        trigger=None if trigger is None else parse_trigger(trigger),
        trigger_at=said_at("run", "trigger"),
        deadline=parse_duration(said("run", "deadline", "30 seconds")).micros / 1_000_000,
        clock_patience=parse_duration(said("run", "clock_patience", "5 minutes")).micros,
        state_limit=None if limit is None else parse_size(limit),
        state_row_limit=parse_size(row_limit),
        takeover_after=parse_duration(said("run", "takeover_after", "10 seconds")).micros / 1_000_000,
        rows_limit=said("limits", "rows", None),
        supervise=SuperviseSettings(
            backoff=parse_duration(said("supervise", "backoff", "2 seconds")),
            backoff_max=parse_duration(said("supervise", "backoff_max", "5 minutes")),
            failures_per_hour=said("supervise", "failures_per_hour", 5),
            healthy_after=parse_duration(said("supervise", "healthy_after", "2 minutes")),
            progress_within=parse_duration(said("supervise", "progress_within", "10 minutes")),
            start_within=parse_duration(said("supervise", "start_within", "3 minutes")),
            autostart=bool(said("supervise", "autostart", None)),
        ),
        reports=ReportSettings(
            pandas_rows=said("reports", "pandas_rows", 100_000),
            windows=said("reports", "windows", 2_000),
            suites={**project.reports.suites, **own.reports.suites},
            own=tuple(own.reports.suites),
        ),
        schedule=own.airflow.schedule,
        airflow=AirflowDefaults(
            **{key: said("airflow", key, None) for key in AirflowDefaults.model_fields if key != "default_args"},
            default_args=project.airflow.default_args.under(own.airflow.default_args),
        ),
    )
    conf = JobConf(job=job, root=root, file=job_path, sources=own.sources, tables=own.tables, lines=lines)
    return settings, conf
