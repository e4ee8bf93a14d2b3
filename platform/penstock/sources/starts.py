"""Name where a job begins to read that has no position."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from penstock.errors import ConfigError

__all__ = ["Start", "Version", "version"]

_TEXT = re.compile(r"version (0|[1-9][0-9]*)")


class Start(Enum):
    """Where a job begins that has no position.

    In topics that is at the earliest records that are there, or after the latest. In a table it is at a snapshot of all
    rows that it has, or after its newest version.
    """

    EARLIEST = "earliest"
    LATEST = "latest"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a table, whose commit is the first that is read."""

    example: ClassVar[str] = "version 7"

    number: int

    def __post_init__(self) -> None:
        if not isinstance(self.number, int) or isinstance(self.number, bool) or self.number < 0:
            raise ConfigError(f"version({self.number!r}) is no whole number from 0 on")

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read "version 7", as a job's file has it; raises ValueError."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no version, such as {cls.example!r}")
        return cls(int(match[1]))


def version(number: int) -> Version:
    """Let a job begin with what this version has added."""
    return Version(number)
