"""Take settings from the environment: `PENSTOCK_SECTION_KEY` goes before both files (F66)."""

from __future__ import annotations

import types
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, GetPydanticSchema, ValidationError
from pydantic.fields import FieldInfo

from penstock.config.toml_reader import closest, describe
from penstock.errors import ConfigError

__all__ = ["from_environment", "variable"]

Model = TypeVar("Model", bound=BaseModel)

PREFIX = "PENSTOCK_"
_FILES_ONLY = ("airflow",)
"""Sections that only files have: variables of theirs would look like those of Airflow, such as its password."""
_TRUTHS = {"true": True, "false": False}


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
    for section, field in model.model_fields.items():
        part = field.annotation
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
