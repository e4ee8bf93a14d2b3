"""Start drivers, watch them and end them: what a launcher promises."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import JsonValue

from penstock.supervise.machine import Seen
from penstock.supervise.stream import DriverSlot, Stream, Wish, start_words

__all__ = ["Handle", "LaunchOrder", "Launcher", "run_words"]

Handle = dict[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """An order to start a driver: a job of a project, with the code of one version, as one generation."""

    job: str
    project: Path
    code: Path
    stream: Stream
    logs: Path


class Launcher(Protocol):
    """Start drivers somewhere. Every method may be called again after the supervisor was killed in the middle of it."""

    def launch(self, order: LaunchOrder) -> Handle:
        """Start the driver and return what finds it again, as plain JSON.

        Raises OSError or PenstockError where nothing was started.
        """

    def look(self, job: str, slot: DriverSlot, logs: Path) -> Seen:
        """Return whether a driver lives and how it ended; UNKNOWN where the launcher cannot know, never a guess."""

    def kill(self, handle: Handle) -> bool:
        """End a driver and all that belongs to it; of one that is gone, what it left behind. May be called again.

        Returns False for one that cannot be reached from here.
        """


def run_words(order: LaunchOrder) -> list[str]:
    """Return the arguments of `penstock` that run the driver of an order."""
    stream = order.stream
    words = ["run", order.job, "--json", "--project", str(order.project), "--code", str(order.code)]
    words += ["--generation", str(stream.generation), "--command", stream.command or f"generation-{stream.generation}"]
    words += start_words(stream.start, stream.options)
    if stream.available_now:
        words.append("--available-now")
    if stream.wish is Wish.DRAIN:
        words.append("--drain")
    return words
