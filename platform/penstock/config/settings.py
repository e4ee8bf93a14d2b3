"""Read what is in force for a job, from the environment and the two files, and what a job is given of it.

A variable `PENSTOCK_SECTION_KEY` of the environment goes before both files (F66).
"""

from __future__ import annotations

import os
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, GetPydanticSchema, SkipValidation, ValidationError
from pydantic.fields import FieldInfo

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.locate import is_url, root_of
from penstock.config.schema import (
    AirflowDefaults,
    AirflowSection,
    JobFile,
    JobSections,
    ProjectFile,
    SharedSections,
    over,
)
from penstock.config.sources import SourceTable
from penstock.config.toml_reader import KeyPath, closest, describe, place_of, read_model, shown_path
from penstock.config.values import is_local
from penstock.errors import ConfigError, UnknownName
from penstock.graph.names import is_name
from penstock.graph.source_location import user_site

__all__ = [
    "JobConf",
    "Settings",
    "airflow_defaults",
    "checkpoint_root",
    "from_environment",
    "load_settings",
    "variable",
]

Model = TypeVar("Model", bound=BaseModel)

PREFIX = "PENSTOCK_"
_FILES_ONLY = ("airflow",)
"""Sections that only files have: variables of theirs would look like those of Airflow, such as its password."""
_TRUTHS = {"true": True, "false": False}
_AIRFLOW_KEYS = tuple(AirflowSection.model_fields)


def variable(section: str, key: str) -> str:
    """Return the name of the variable that sets a key."""
    return f"{PREFIX}{section}_{key}".upper()


def from_environment(model: type[Model], environment: Mapping[str, str], *, refused: Collection[str] = ()) -> Model:
    """Return what the environment says of a configuration; what it does not say is absent.

    Keys with one value can be set, tables cannot. A variable that begins like those of a section and is none, or that
    is one of `refused`, is refused, because it would change nothing without a word. Raises ConfigError, with the
    variable as the place.
    """
    known = {variable(section, key): (section, key, field) for section, key, field in _keys(model)}
    sections = tuple(f"{PREFIX}{section}_".upper() for section in model.model_fields if section not in _FILES_ONLY)
    settings: dict[str, dict[str, Any]] = {}
    for name, text in sorted(environment.items()):
        if name in known:
            section, key, field = known[name]
            settings.setdefault(section, {})[key] = _value(name, text, field)
        elif name.startswith(sections) or name in refused:
            raise ConfigError(
                f"there is no setting {name}; {closest(name, list(known))}", where="the environment variables"
            )
    try:
        return model.model_validate(settings)
    except ValidationError as why:
        error = why.errors()[0]
        name = variable(str(error["loc"][0]), str(error["loc"][1]))
        raise ConfigError(describe(model, error["loc"], error), where=f"the environment variable {name}") from None


def _keys(model: type[BaseModel]) -> Iterator[tuple[str, str, FieldInfo]]:
    for section, outer in model.model_fields.items():
        part = outer.annotation
        if section in _FILES_ONLY:
            continue
        if isinstance(part, type) and issubclass(part, BaseModel):
            for key, inner in part.model_fields.items():
                if _kind(inner) is not None:
                    yield section, key, inner


def _kind(field: FieldInfo) -> type | None:
    """Return what a variable's text is read as: int or bool, str for the text of any other value, None for a table."""
    kind: Any = field.annotation
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    if typing.get_origin(kind) is typing.Annotated:
        kind, *marks = typing.get_args(kind)
    else:
        marks = field.metadata
    if any(isinstance(mark, GetPydanticSchema) for mark in marks):
        return str
    if typing.get_origin(kind) in (dict, list) or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return None
    return kind if kind in (int, bool) else str


def _value(name: str, text: str, field: FieldInfo) -> object:
    kind = _kind(field)
    if kind is str:
        return text
    try:
        return _TRUTHS[text] if kind is bool else int(text.replace("_", ""))
    except (KeyError, ValueError):
        wanted = "true or false" if kind is bool else "a whole number"
        raise ConfigError(f"it is {text!r} and takes {wanted}", where=f"the environment variable {name}") from None


class Settings(SharedSections):
    """The settings in force for one job: of the environment, then the job's own file, the project's, and the defaults.

    Attributes:
        root: The checkpoint root.
        airflow: When Airflow runs the job by itself, and how its tasks run.
        own_suites: The checks that the job's own file names suites for.
        places: Where each key that is set is written, by section and key; a key within tables has dots.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    root: Annotated[CheckpointFolder, SkipValidation]
    airflow: AirflowSection
    own_suites: tuple[str, ...]
    places: Mapping[tuple[str, str], str]

    def where(self, section: str, key: str) -> str | None:
        """Return the file and line, or the variable, that sets a key; None where nothing does."""
        return self.places.get((section, key))


@dataclass(kw_only=True)
class JobConf:
    """A job's sources and tables by name: the argument of `build(conf)`.

    `used` collects the keys that the job has read.
    """

    job: str
    root: Path
    file: Path
    sources: Mapping[str, SourceTable]
    tables: Mapping[str, str]
    lines: Mapping[KeyPath, int]
    used: set[KeyPath] = field(default_factory=set)

    def source(self, name: str) -> Any:
        """Return the source of `[sources.NAME]`.

        Raises UnknownName at the job's line, and ConfigError at the line of what the source does not take: a path where
        nothing is, or an argument that it refuses.
        """
        if name not in self.sources:
            raise self._unknown("sources", name, list(self.sources))
        self.used.add(("sources", name))
        table = self.sources[name]
        if (missing := table.missing_path(self.root)) is not None:
            key, path = missing
            what = "file" if Path(path).suffix else "folder"
            raise ConfigError(f"there is no {what} {path!r}", where=self._place(name, key))
        try:
            return table.make(self.root)
        except ConfigError as why:
            # Constructors name the argument that they refuse, and a table inside is one.
            said = why.where if why.where in table.arguments else None
            named = said or next((key for key in table.arguments if re.search(rf"\b{key}\b", why.what)), None)
            raise ConfigError(why.what, where=self._place(name, named)) from why

    def _place(self, source: str, key: str | None) -> str:
        return place_of(self.file, self.lines, ("sources", source) if key is None else ("sources", source, key))

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

    def _unknown(self, table: str, name: str, known: list[str]) -> UnknownName:
        if not self.file.is_file():
            problem = f"the job asks for {table[:-1]} {name!r}, and there is no {shown_path(self.file)}"
        else:
            problem = f"{shown_path(self.file)} has no {table[:-1]} {name!r}; {closest(name, known)}"
        return UnknownName(problem, where=str(user_site()))


def _around() -> ProjectFile:
    """Return what the environment says, which is nothing of Airflow's tasks."""
    return from_environment(ProjectFile, os.environ, refused=[variable("airflow", key) for key in _AIRFLOW_KEYS])


def checkpoint_root(root: Path) -> CheckpointFolder:
    """Return the checkpoint root of jobs that do not name their own; raises ConfigError."""
    project, _ = read_model(ProjectFile, root / "conf" / "penstock.toml")
    checkpoint = over(_around().checkpoint, project.checkpoint)
    return root_of(checkpoint.root, project=root, cache=checkpoint.cache)


def airflow_defaults(root: Path) -> AirflowDefaults:
    """Return how the tasks of DAGs run that are of no one job; raises ConfigError."""
    return read_model(ProjectFile, root / "conf" / "penstock.toml")[0].airflow


def _root(text: str, project: Path, cache: str | None, where: str | None) -> CheckpointFolder:
    try:
        return root_of(text, project=project, cache=cache)
    except ConfigError as why:
        raise ConfigError(why.what, where=where) from why


def load_settings(
    root: Path, job: str, *, code: Path | None = None, model: type[JobSections] = JobFile
) -> tuple[Settings, JobConf]:
    """Read the environment, the job's file, which may be absent, and the project's; the earlier overrides the later.

    `code` is a folder with another `conf/`; paths are relative to the project in any case. By `JobSections` the sources
    are not read.
    Raises ConfigError with file and line, or with the variable; also where executors could not see the checkpoint.
    """
    conf_folder = (code or root) / "conf"
    project_path, job_path = conf_folder / "penstock.toml", conf_folder / "jobs" / f"{job}.toml"
    project, project_lines = read_model(ProjectFile, project_path)
    own, lines = read_model(model, job_path) if job_path.exists() else (model(), {})
    around = _around()
    places = {
        **_places(project, lambda *key: place_of(project_path, project_lines, key)),
        **_places(own, lambda *key: place_of(job_path, lines, key)),
        **_places(around, lambda *key: f"the environment variable {variable(*key)}"),
    }
    sections = {
        name: over(getattr(around, name), over(getattr(own, name), getattr(project, name)))
        for name in SharedSections.model_fields
    }
    master, checkpoint = sections["spark"].master, sections["checkpoint"]
    if not (checkpoint.shared or is_local(master) or is_url(checkpoint.root)):
        raise ConfigError(
            f"executors of {master} run on other machines and must see the checkpoint. Keep its root on HDFS, or "
            "where all of them see it under the same path and say `shared = true` in [checkpoint], or run with a local "
            "master",
            where=places.get(("spark", "master")),
        )
    settings = Settings(
        **sections,
        root=_root(checkpoint.root, root, checkpoint.cache, places.get(("checkpoint", "root"))),
        airflow=over(own.airflow, project.airflow),
        own_suites=tuple(own.reports.suites),
        places=places,
    )
    conf = JobConf(job=job, root=root, file=job_path, sources=own.sources, tables=own.tables, lines=lines)
    return settings, conf


def _places(file: SharedSections, place: Callable[[str, str], str]) -> dict[tuple[str, str], str]:
    """Return where a file sets each key of a section."""
    return {
        (section, key): place(section, key)
        for section in SharedSections.model_fields
        for key in _set_keys(getattr(file, section))
    }


def _set_keys(section: BaseModel, around: str = "") -> Iterator[str]:
    """Yield the keys that a section sets, those of its tables with dots, as `sources.orders.rows`."""
    for key in section.model_fields_set:
        yield around + key
        value = getattr(section, key)
        for name, table in value.items() if isinstance(value, dict) else ():
            if isinstance(table, BaseModel):
                yield f"{around}{key}.{name}"
                yield from _set_keys(table, f"{around}{key}.{name}.")
