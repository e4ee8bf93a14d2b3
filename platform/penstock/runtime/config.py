"""Define what `conf/penstock.toml` and `conf/jobs/JOB.toml` may say, and what a job is given of it.

docs/configuration.md describes every key; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from penstock.errors import ConfigError, UnknownName
from penstock.graph.durations import Duration, days, hours, micros, millis, minutes, seconds, whole_micros
from penstock.graph.policies import BadRecord, OnEnd
from penstock.graph.sites import user_site
from penstock.runtime.config_errors import closest, line_of, read_model, shown_path
from penstock.runtime.toml_lines import KeyPath
from penstock.runtime.triggers import AsFastAsPossible, FixedInterval, Trigger

__all__ = [
    "JobConf",
    "JobFile",
    "ProjectFile",
    "Settings",
    "SuperviseSettings",
    "checkpoint_root",
    "load_settings",
    "parse_duration",
    "parse_size",
    "parse_trigger",
]

_UNITS = {
    "micros": micros,
    "millis": millis,
    "seconds": seconds,
    "minutes": minutes,
    "hours": hours,
    "days": days,
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) *([a-z]+)")
_SIZES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"([1-9]\d*) *(KiB|MiB|GiB|TiB)")
_ROOT = "checkpoints"
_LEAST_TAKEOVER = 5.0
"""Seconds; a holder writes its heartbeat every two, and one that is late once is not dead."""
_OURS = {
    "spark.master": "it is the key `master`",
    "spark.app.name": "it is the name of the job",
    "spark.jars": "`make setup` fills .jars",
    "spark.sql.adaptive.enabled": "state lives by partition number, and nothing may fold partitions together",
    "spark.sql.session.timeZone": "all times are UTC",
    "spark.sql.ansi.enabled": "an overflow must raise",
}


def parse_duration(text: str) -> Duration:
    """Read a duration such as "10 seconds" or "500 millis"."""
    found = _DURATION.fullmatch(text.strip())
    unit = None if found is None else _UNITS.get(found.group(2)) or _UNITS.get(f"{found.group(2)}s")
    if found is None or unit is None:
        raise ValueError(f'write a number and a unit, such as "10 seconds"; the units are {", ".join(_UNITS)}')
    try:
        return Duration(whole_micros(Decimal(found.group(1)), unit(1).micros))
    except ValueError as why:
        raise ValueError(f"that {why}") from None


def parse_trigger(text: str) -> Trigger:
    """Read a trigger: "as_fast", or "interval 10 seconds"."""
    if text == "as_fast":
        return AsFastAsPossible()
    word, _, rest = text.partition(" ")
    if word != "interval":
        raise ValueError('write "as_fast", or "interval" and a duration')
    interval = parse_duration(rest)
    if interval < millis(1):
        raise ValueError("the least interval is 1 millis")
    return FixedInterval(interval.micros)


def parse_size(text: str) -> int:
    """Read a size in bytes such as "512 MiB" or "20 GiB"."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f'write a whole number and a unit, such as "20 GiB"; the units are {", ".join(_SIZES)}')
    return int(found.group(1)) * _SIZES[found.group(2)]


def _flat(value: object) -> object:
    """Write out dotted keys that TOML has made tables of: spark.driver.memory = "4g"."""
    if not isinstance(value, dict):
        return value
    flat: dict[str, object] = {}
    for name, inner in value.items():
        below = _flat(inner)
        flat.update({f"{name}.{k}": v for k, v in below.items()} if isinstance(below, dict) else {name: below})
    return flat


def _local_master(master: str) -> str:
    if not master.startswith("local"):
        raise ValueError("the checkpoint is on this machine's disk, so Spark must be local, such as 'local[*]'")
    return master


def _spark_setting(name: str) -> str:
    if not name.startswith("spark."):
        raise ValueError("settings of Spark begin with 'spark.'")
    if name in _OURS:
        raise ValueError(f"it cannot be set here: {_OURS[name]}")
    return name


def _checked_duration(text: str) -> str:
    parse_duration(text)
    return text


def _checked_trigger(text: str) -> str:
    parse_trigger(text)
    return text


def _checked_size(text: str) -> str:
    parse_size(text)
    return text


def _checked_patience(text: str) -> str:
    if parse_duration(text).micros < _LEAST_TAKEOVER * 1_000_000:
        raise ValueError(f"the least is {_LEAST_TAKEOVER:g} seconds: a holder writes its heartbeat every two")
    return text


def _checked_key(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", name):
        raise ValueError("a name is a lower-case letter, then up to 62 letters, digits or underscores")
    return name


Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, AfterValidator(_checked_key)]
SparkKey = Annotated[str, AfterValidator(_spark_setting)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CheckpointSection(_Section):
    """`[checkpoint]`: where and how much is kept."""

    root: Text | None = None
    keep: Annotated[int, Field(ge=1)] | None = None


class SparkSection(_Section):
    """`[spark]`: the session of the driver."""

    master: Annotated[Text, AfterValidator(_local_master)] | None = None
    conf: Annotated[dict[SparkKey, str], BeforeValidator(_flat)] = {}


class RunSection(_Section):
    """`[run]`: how the driver behaves."""

    trigger: Annotated[str, AfterValidator(_checked_trigger)] | None = None
    deadline: Annotated[str, AfterValidator(_checked_duration)] | None = None
    takeover_after: Annotated[str, AfterValidator(_checked_patience)] | None = None


class LimitsSection(_Section):
    """`[limits]`: where a job stops rather than grow."""

    state: Annotated[str, AfterValidator(_checked_size)] | None = None
    rows: Annotated[int, Field(ge=1)] | None = None


class SuperviseSection(_Section):
    """`[supervise]`: how patient the supervisor is with drivers."""

    backoff: Annotated[str, AfterValidator(_checked_duration)] | None = None
    backoff_max: Annotated[str, AfterValidator(_checked_duration)] | None = None
    failures_per_hour: Annotated[int, Field(ge=0)] | None = None
    healthy_after: Annotated[str, AfterValidator(_checked_duration)] | None = None
    progress_within: Annotated[str, AfterValidator(_checked_duration)] | None = None
    start_within: Annotated[str, AfterValidator(_checked_duration)] | None = None


class ReplaySource(_Section):
    """`[sources.NAME]` of kind file_replay: a file as if its rows were arriving."""

    kind: Literal["file_replay"]
    path: Text
    order_by: Text
    rows_per_batch: Annotated[int, Field(ge=1)] = 5_000
    on_end: Literal["close", "keep_open"] = "close"
    ddl: Annotated[Text | None, Field(alias="schema")] = None
    nulls: list[str] = [""]
    on_bad_record: Literal["quarantine", "fail"] = "quarantine"

    def source(self, path: Path) -> Any:
        """Return the source that a job reads; `path` is this section's, found from the project root."""
        from penstock.sources import FileReplay

        return FileReplay(
            path,
            order_by=self.order_by,
            rows_per_batch=self.rows_per_batch,
            on_end=OnEnd(self.on_end),
            schema=self.ddl,
            nulls=tuple(self.nulls),
            on_bad_record=BadRecord(self.on_bad_record),
        )


class ProjectFile(_Section):
    """`conf/penstock.toml`: what holds for every job that does not say otherwise."""

    checkpoint: CheckpointSection = CheckpointSection()
    spark: SparkSection = SparkSection()
    run: RunSection = RunSection()
    limits: LimitsSection = LimitsSection()
    supervise: SuperviseSection = SuperviseSection()


class JobFile(ProjectFile):
    """`conf/jobs/JOB.toml`: the same sections, and the sources and tables of one job."""

    sources: dict[Name, ReplaySource] = {}
    tables: dict[Name, Text] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperviseSettings:
    """Hold how patient the supervisor is; `docs/configuration.md` says what each means."""

    backoff: Duration
    backoff_max: Duration
    failures_per_hour: int
    healthy_after: Duration
    progress_within: Duration
    start_within: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Hold what is in force for one job: its own file, then the project's, then what is built in.

    `deadline` and `takeover_after` are seconds, `state_limit` the bytes that a stateful step may keep. `trigger` is
    None where neither file has one, and `trigger_at` is where the one that counts is written.
    """

    root: Path
    keep: int
    master: str
    spark_conf: Mapping[str, str]
    trigger: Trigger | None
    trigger_at: str | None
    deadline: float
    takeover_after: float
    state_limit: int | None
    rows_limit: int | None
    supervise: SuperviseSettings


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


def checkpoint_root(root: Path) -> Path:
    """Return the checkpoint root of jobs that do not name their own; raises ConfigError."""
    project, _ = read_model(ProjectFile, root / "conf" / "penstock.toml")
    return root / (project.checkpoint.root or _ROOT)


def load_settings(root: Path, job: str, *, code: Path | None = None) -> tuple[Settings, JobConf]:
    """Read the project's file and the job's, which may be absent; `code` is a folder with another `conf/`.

    Paths in them are relative to the project in any case. Raises ConfigError with file and line.
    """
    conf_folder = (code or root) / "conf"
    project_path, job_path = conf_folder / "penstock.toml", conf_folder / "jobs" / f"{job}.toml"
    project, project_lines = read_model(ProjectFile, project_path)
    own, lines = read_model(JobFile, job_path) if job_path.exists() else (JobFile(), {})

    def said(section: str, key: str, default: Any) -> Any:
        for file in (own, project):
            value = getattr(getattr(file, section), key)
            if value is not None:
                return value
        return default

    trigger = said("run", "trigger", None)
    at = None
    if trigger is not None:
        file, known = (job_path, lines) if own.run.trigger is not None else (project_path, project_lines)
        at = f"{shown_path(file)}:{line_of(known, ('run', 'trigger'))}"
    limit = said("limits", "state", None)
    settings = Settings(
        root=root / said("checkpoint", "root", _ROOT),
        keep=said("checkpoint", "keep", 20),
        master=said("spark", "master", "local[*]"),
        spark_conf={**project.spark.conf, **own.spark.conf},
        trigger=None if trigger is None else parse_trigger(trigger),
        trigger_at=at,
        deadline=parse_duration(said("run", "deadline", "30 seconds")).micros / 1_000_000,
        state_limit=None if limit is None else parse_size(limit),
        takeover_after=parse_duration(said("run", "takeover_after", "10 seconds")).micros / 1_000_000,
        rows_limit=said("limits", "rows", None),
        supervise=SuperviseSettings(
            backoff=parse_duration(said("supervise", "backoff", "2 seconds")),
            backoff_max=parse_duration(said("supervise", "backoff_max", "5 minutes")),
            failures_per_hour=said("supervise", "failures_per_hour", 5),
            healthy_after=parse_duration(said("supervise", "healthy_after", "2 minutes")),
            progress_within=parse_duration(said("supervise", "progress_within", "10 minutes")),
            start_within=parse_duration(said("supervise", "start_within", "3 minutes")),
        ),
    )
    conf = JobConf(job=job, root=root, file=job_path, sources=own.sources, tables=own.tables, lines=lines)
    return settings, conf
