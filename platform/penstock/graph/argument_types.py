"""Refuse arguments of other types than a constructor says, before one changes silently what a job does.

A policy that is not the member of its enum is compared by `is` and taken for another one: `on_rewrite="fail"` would
pass over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache
from inspect import isclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from penstock.errors import ConfigError

__all__ = ["refuse_empty", "refuse_other_types"]


def refuse_other_types(made: Any) -> None:
    """Raise ConfigError for a field of a dataclass that has a value of another type than its annotation.

    A bool is no number here, and a text no sequence of texts.
    """
    kind: Any = type(made)
    hints = _hints(kind)
    for field in fields(made):
        value, hint = getattr(made, field.name), hints[field.name]
        if not _fits(value, hint):
            if isinstance(value, str) and field.repr and _takes_texts(hint):
                raise ConfigError(f"{field.name}={value!r} is a text; write {field.name}=[{value!r}]")
            shown = f"{value!r:.80}" if field.repr else f"of type {type(value).__name__}"  # it may be a secret
            raise ConfigError(f"{field.name} is {shown}, and takes {' or '.join(dict.fromkeys(_words(hint)))}")


def refuse_empty(made: Any, *names: str) -> None:
    """Raise ConfigError for a field with an empty text: as a path it is the folder that the process is in."""
    for name in names:
        if getattr(made, name) == "":
            raise ConfigError(f"{name} is empty")


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    checked = _GENERIC.get(get_origin(hint))
    if checked is not None:
        return checked(value, get_args(hint))
    if hint in {int, float}:
        return isinstance(value, int | hint) and not isinstance(value, bool)
    if hint is Any or not isclass(hint):
        return True
    if getattr(hint, "_is_protocol", False):  # who fits it need not derive from it
        return hint in type(value).__mro__ or all(hasattr(value, name) for name in vars(hint) if name[0] != "_")
    return isinstance(value, hint)


def _fits_one(value: Any, inner: Sequence[Any]) -> bool:
    return any(_fits(value, one) for one in inner)


def _is_sequence(value: Any, inner: Sequence[Any]) -> bool:
    is_one = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return is_one and all(_fits(item, inner[0]) for item in value)


def _is_mapping(value: Any, inner: Sequence[Any]) -> bool:
    return isinstance(value, Mapping) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())


_GENERIC: Mapping[Any, Callable[[Any, Sequence[Any]], bool]] = {
    Union: _fits_one,
    UnionType: _fits_one,
    Literal: lambda value, inner: any(type(value) is type(one) and value == one for one in inner),
    Annotated: lambda value, inner: _fits(value, inner[0]),
    Sequence: _is_sequence,
    Mapping: _is_mapping,
    tuple: lambda value, inner: isinstance(value, tuple) and len(value) == len(inner) and all(map(_fits, value, inner)),
    type: lambda value, inner: isclass(value) and issubclass(value, inner[0]),
    Callable: lambda value, _: callable(value),
}


def _takes_texts(hint: Any) -> bool:
    return any(
        get_origin(one) is Sequence and get_args(one) == (str,)
        for one in (get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,))
    )


def _words(hint: Any) -> list[str]:
    """Return in words what fits an annotation, each possibility for itself."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return [word for one in inner for word in _words(one)]
    if origin is Annotated:
        return _words(inner[0])
    if origin is Literal:
        return [str(one) if isinstance(one, Enum) else repr(one) for one in inner]
    if origin is Sequence:
        return [f"a list of {' or '.join(_words(inner[0]))}"]
    if origin is Mapping:
        return ["a mapping"]
    if origin is type:
        return [f"a class of {inner[0].__name__}"]
    if isclass(hint) and issubclass(hint, Enum):
        return [str(member) for member in hint]
    named = {NoneType: "None", str: "a text", int: "a whole number", float: "a number", bool: "True or False"}
    return [named.get(hint) or str(getattr(hint, "__name__", hint))]
