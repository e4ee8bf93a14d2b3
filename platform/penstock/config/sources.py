"""Read `[sources.NAME]` of a job's file: the arguments of a source's constructor, by their names and types (F66).

`kind` is the name of the class in small letters, as `file_replay` for `FileReplay`. So what a file can say of a source
is what code can say, and a source that is added to `penstock.sources` is there for files as well.

- Texts, numbers, lists and tables are as TOML has them.
- An enum, or a Literal of some of its members, is the text of a value. A Duration is "10 seconds".
- A class with `parse` is the text that this method reads. One among several types has an `example` of such a text.
- A path counts from the root of the project, unless it is a URL.
- Another class, such as a Format, is a table with a `kind` of its own.

A text may be a reference to a secret, `${env:NAME}` or `${file:PATH}`, and what is one by its name has to be.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, EnumType
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    TypeAdapter,
    ValidationError,
)
from pydantic import (
    create_model as new_model,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from penstock.checkpoint.storage.locate import is_url
from penstock.config.ddl import ddl_problem
from penstock.config.references import resolved_text
from penstock.config.toml_reader import DESCRIBED, Loc, describe
from penstock.config.values import DurationValue, Name, Text, flat_table, is_secret, parsed, reference_of
from penstock.errors import ConfigError
from penstock.graph.durations import Duration

__all__ = ["SourceTable", "SourceTables", "argument_models", "kinds_of"]

_KIND, _DDL = "kind", "schema"
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_PATTERN = re.compile(r"[*?\[{]")
"""What makes a path a pattern of several."""


def _path_of(text: str) -> Path:
    """Return a path; pydantic takes no class whose constructor has no signature."""
    return Path(text)


_STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)
_SIMPLE: Mapping[Any, Any] = {
    str: Text,
    int: int,
    float: float,
    bool: bool,
    datetime: datetime,
    Any: str | bool | int | float,
    Path: Annotated[Text, AfterValidator(_path_of)],
    Duration: DurationValue,
}


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of a file that describes a source, or a part of one.

    Attributes:
        made: The class of its kind.
        arguments: What the table says, by argument; a table inside is a SourceTable.
    """

    made: Callable[..., Any]
    arguments: Mapping[str, Any]

    def make(self, root: Path) -> Any:
        """Return what the table describes; paths and files of secrets are looked for from `root`.

        Raises ConfigError for a secret that is not there, and what the constructor raises. An argument that cannot be
        made, such as a table inside with a value that its class does not take, is the place of its error.
        """
        made = {}
        for key, value in self.arguments.items():
            try:
                made[key] = _filled(value, root)
            except ConfigError as why:
                raise ConfigError(why.what, where=key) from why
        return self.made(**made)

    def missing_path(self, root: Path) -> tuple[str, str] | None:
        """Return an argument with the path of a file or folder that is not there, and that path; None for none."""
        for key, value in self.arguments.items():
            if isinstance(value, Path) and not _is_elsewhere(value) and not (root / value).exists():
                return key, str(value)
        return None


def _is_elsewhere(path: Path) -> bool:
    return is_url(_as_written(path)) or _PATTERN.search(str(path)) is not None


def _as_written(path: Path) -> str:
    """Return a path's text; `Path` makes one slash of the two of a URL."""
    return re.sub(r"^([a-z]+):/(?=[^/])", r"\1://", str(path))


def _filled(value: Any, root: Path) -> Any:
    """Return a value with its secrets, and with paths from the root."""
    if isinstance(value, SourceTable):
        return value.make(root)
    if isinstance(value, Path):
        return _as_written(value) if is_url(_as_written(value)) else root / value
    if isinstance(value, dict):
        return {key: _filled(inner, root) for key, inner in value.items()}
    if isinstance(value, list):
        return tuple(_filled(inner, root) for inner in value)
    return resolved_text(value, root) if isinstance(value, str) else value


def kinds_of(base: type) -> dict[str, type]:
    """Return the classes of `penstock.sources` that derive from a class and files can describe, by their kinds."""
    import penstock.sources as offered

    classes = [getattr(offered, name) for name in offered.__all__]
    return {
        _WORD.sub("_", cls.__name__).lower(): cls
        for cls in classes
        if isinstance(cls, type) and base in cls.__mro__ and getattr(cls, "in_files", True)
    }


def argument_models() -> dict[str, type[BaseModel]]:
    """Return what a table of each kind of source may hold."""
    from penstock.sources.base import Source

    return {kind: _model(cls) for kind, cls in kinds_of(Source).items()}


@cache
def _model(made: type) -> type[BaseModel]:
    """Return the arguments of a class's constructor as a model."""
    constructor = made.__init__  # type: ignore[misc]  # of the class itself, whatever derives from it
    hints = get_type_hints(made, include_extras=True) | get_type_hints(constructor, include_extras=True)
    fields: dict[str, Any] = {_KIND: (str, ...)}
    for name, parameter in inspect.signature(made).parameters.items():
        default = ... if parameter.default is parameter.empty else parameter.default
        checks = [
            AfterValidator(_no_secret(name)),
            *([AfterValidator(_types_are_known)] if _is_ddl(name, hints[name]) else []),
        ]
        fields[name] = (Annotated[_in_file(hints[name]), *checks], default)
    # An argument may be named as something that a model has, such as `schema`.
    config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), **_STRICT)
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return new_model(made.__name__, __config__=config, **fields)


def _no_secret(name: str) -> Callable[[Any], Any]:
    """Return a check that a value with this name, or what a table of settings has by such a name, is no secret."""

    def check(value: Any) -> Any:
        for key, text in value.items() if isinstance(value, dict) else [(name, value)]:
            if isinstance(text, str) and is_secret(key) and reference_of(text) is None:
                words = f"{key} is a secret: write where it is, '${{env:NAME}}' or '${{file:PATH}}'"
                raise PydanticCustomError(DESCRIBED, "{words}", {"words": words})
        return value

    return check


def _is_ddl(name: str, hint: Any) -> bool:
    """Return whether an argument is Spark DDL; the schema of Avro may be more than a text."""
    return name == _DDL and hint in (str, str | None)


def _types_are_known(schema: str | None) -> str | None:
    """Return a schema in DDL; raise for a type that Spark does not have."""
    problem = None if schema is None else ddl_problem(schema)
    if problem is not None:
        raise PydanticCustomError(DESCRIBED, "{words}", {"words": f"{_DDL} is {schema!r}: {problem}"})
    return schema


def _in_file(hint: Any) -> Any:
    """Return the type of what a file says, for the type of an argument."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[(_in_file(inner[0]), *inner[1:])]
    if members := _members(hint):
        by_value = {member.value: member for member in members}
        return Annotated[Literal[tuple(by_value)], AfterValidator(by_value.__getitem__)]
    if origin in (UnionType, Union):
        given = [one for one in inner if one is not NoneType]
        kind = _in_file(given[0]) if len(given) == 1 else _any_of(given)
        return kind | None if len(given) < len(inner) else kind
    if origin is not None and issubclass(origin, Mapping):
        return Annotated[dict[str, _in_file(inner[1])], BeforeValidator(flat_table)]  # type: ignore[misc]
    if origin is not None and issubclass(origin, Sequence):
        # An empty text may be one of several, as of those that mean null.
        return list[str if inner[0] is str else _in_file(inner[0])]  # type: ignore[misc]
    if hint in _SIMPLE or not isinstance(hint, type):
        return _SIMPLE.get(hint, hint)
    if hasattr(hint, "parse"):
        return Annotated[hint, parsed(hint.parse)]
    return Annotated[Any, PlainValidator(lambda table: _read(table, kinds_of(hint)))]


def _any_of(hints: Sequence[Any]) -> Any:
    """Return the type of what a file says for one of several types: the first that takes it."""
    if set(hints) == {str, Path}:
        return _in_file(Path)
    adapters = [_adapter(hint) for hint in hints]
    classes = [hint for hint in hints if isinstance(hint, type) and not issubclass(hint, Enum | datetime)]

    def read(value: Any) -> Any:
        if isinstance(value, dict) and _KIND in value:
            return _read(value, {kind: cls for base in classes for kind, cls in kinds_of(base).items()})
        for adapter in adapters:
            with suppress(ValidationError):
                return adapter.validate_python(value)
        raise ValueError(f"it takes {' or '.join(map(_shown_type, hints))}")

    return Annotated[Any, PlainValidator(read)]


def _members(hint: Any) -> Sequence[Enum]:
    """Return the members of an enum, or those that a Literal names; none of anything else."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return list(hint) if isinstance(hint, EnumType) else ()


def _adapter(hint: Any) -> TypeAdapter[Any]:
    # What a class reads by itself has no configuration of pydantic's.
    return TypeAdapter(_in_file(hint), config=None if hasattr(hint, "parse") else _STRICT)


def _shown_type(hint: Any) -> str:
    if members := _members(hint):
        return " or ".join(repr(member.value) for member in members)
    if hasattr(hint, "parse"):
        return f"text such as {hint.example!r}"
    return {str: "text", int: "a whole number", datetime: "a time with a zone"}.get(hint, "a table")


def _read(table: Any, kinds: Mapping[str, type], around: Loc = ()) -> SourceTable:
    """Return a table by its kind; raises ValidationError with all that is wrong, in words."""
    place = f" in [{'.'.join(map(str, around))}]" if around else ""
    kind = table.get(_KIND) if isinstance(table, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        usable = " or ".join(map(repr, kinds))
        if not isinstance(table, dict):
            raise _refused([((), f"{table!r}{place} is no table with a `kind`; use {usable}")])
        if _KIND not in table:
            raise _refused([((), f"the key 'kind' is missing{place}; use {usable}")])
        raise _refused([((_KIND,), f"kind is {kind!r}{place}; use {usable}")])
    model = _model(kinds[kind])
    try:
        values = model.model_validate(table)
    except ValidationError as why:
        problems = [(error["loc"], describe(model, error["loc"], error, around=around)) for error in why.errors()]
        raise _refused(problems) from None
    return SourceTable(kinds[kind], {key: getattr(values, key) for key in values.model_fields_set - {_KIND}})


def _refused(problems: Sequence[tuple[Loc, str]]) -> ValidationError:
    details = [
        InitErrorDetails(type=PydanticCustomError(DESCRIBED, "{words}", {"words": words}), loc=loc, input=None)
        for loc, words in problems
    ]
    return ValidationError.from_exception_data("a source", details)


def _read_all(tables: Any) -> Any:
    """Return all tables of `[sources]`; raises ValidationError with what is wrong in any of them."""
    from penstock.sources.base import Source

    if not isinstance(tables, dict):
        return tables
    read: dict[str, SourceTable] = {}
    problems: list[tuple[Loc, str]] = []
    for name, table in tables.items():
        try:
            read[name] = _read(table, kinds_of(Source), ("sources", name))
        except ValidationError as why:
            problems += [((name, *error["loc"]), error["ctx"]["words"]) for error in why.errors()]
    if problems:
        raise _refused(problems)
    return read


SourceTables = Annotated[dict[Name, SourceTable], BeforeValidator(_read_all)]
