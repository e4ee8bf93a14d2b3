"""Tell which files below a folder a pattern means, and which folders may have some."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from penstock.errors import ConfigError

__all__ = ["Pattern", "is_hidden"]

_ANY_DEPTH = "**"
_UNFINISHED = (".tmp", ".part", ".partial", ".crdownload", ".inprogress", "._COPYING_")
"""How names of files end that somebody is still writing."""

States = frozenset[int]
"""How many parts of a pattern a path may have used up."""


def is_hidden(name: str) -> bool:
    """Return whether a file or folder of this name is passed over: it is unfinished, or not data.

    A name with "=" is a partition, as `_day=1`, and data.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith(_UNFINISHED)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of paths below a folder, such as `*.json` or `date=*/**/*.parquet`.

    `*`, `?` and `[…]` stand for characters of one name, a part `**` for any number of folders.
    """

    text: str

    def __post_init__(self) -> None:
        parts = self.text.split("/")
        if not all(parts) or {".", ".."} & {*parts}:
            raise ConfigError(f"pattern={self.text!r} has an empty part, `.` or `..`; paths are below the folder")

    @property
    def start(self) -> States:
        """The states of the folder itself."""
        return _closed(self.text, frozenset({0}))

    def below(self, states: States, name: str) -> States:
        """Return the states of a name in a folder of these states."""
        parts = _parts(self.text)
        stay = {i for i in states if i < len(parts) and parts[i] is None}
        step = {i + 1 for i in states if i < len(parts) and (part := parts[i]) is not None and part.match(name)}
        return _closed(self.text, frozenset(stay | step))

    def is_file(self, states: States, name: str) -> bool:
        """Return whether a file of this name is meant in a folder of these states."""
        parts = _parts(self.text)
        last = parts[-1]
        return len(parts) - 1 in states and last is not None and last.match(name) is not None

    def may_have_files(self, states: States) -> bool:
        """Return whether a file below a folder of these states may be meant."""
        return any(i < len(_parts(self.text)) for i in states)


@lru_cache(maxsize=64)
def _parts(text: str) -> Sequence[re.Pattern[str] | None]:
    """Return what each part must be; None for any number of folders. The last part is a file's."""
    parts = text.split("/")
    parts += ["*"] if parts[-1] == _ANY_DEPTH else []
    return tuple(None if part == _ANY_DEPTH else re.compile(translate(part)) for part in parts)


@lru_cache(maxsize=1024)
def _closed(text: str, states: States) -> States:
    parts, closed = _parts(text), set(states)
    for i in sorted(states):
        while i < len(parts) and parts[i] is None:
            i += 1  # noqa: PLW2901 - no folder at all
            closed.add(i)
    return frozenset(closed)
