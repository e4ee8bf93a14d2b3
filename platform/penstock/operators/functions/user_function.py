"""Open and close a function of the user's, and name its line where it raises.

A function may be an object with `open(info)` and `close()`, which a task calls once each.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError, UserFunctionError
from penstock.graph.source_location import file_of
from penstock.operators.protocol import StepFacts
from penstock.state.key_state import as_datetime

__all__ = ["TaskInfo", "UserFunction", "task_facts"]

_PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """The argument of a function's `open`: the batch, its time and watermark (aware datetimes), the driver's epoch.

    The watermark is None before there is one.
    """

    batch: int
    time: datetime
    watermark: datetime | None
    epoch: int


def task_facts(facts: StepFacts) -> dict[str, Any]:
    """Return the fields of TaskInfo."""
    watermark = None if facts.watermark is None else as_datetime(facts.watermark)
    return {"batch": facts.batch, "time": as_datetime(facts.time), "watermark": watermark, "epoch": facts.epoch}


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function of the user's, and the step that calls it, in words for errors."""

    step: str
    fn: Any

    @contextmanager
    def opened(self, info: TaskInfo) -> Iterator[None]:
        """Call `open(info)` of an object that has it, and its `close()` whatever comes between.

        Raises UserFunctionError for what they raise. After an error, what `close` raises is suppressed: the first error
        is the cause.
        """
        self.notify("open", info)
        try:
            yield
        except BaseException:
            with suppress(UserFunctionError):
                self.notify("close")
            raise
        self.notify("close")

    def notify(self, method: str, *arguments: Any, during: str | None = None) -> None:
        """Call a method of an object that has it; raises UserFunctionError for what it raises."""
        function = getattr(self.fn, method, None)
        if not callable(function):
            return
        try:
            function(*arguments)
        except Exception as why:
            raise self.blamed(why, during or method) from why

    def blamed(self, why: Exception, during: str) -> UserFunctionError:
        """Return the error of the function that raised: step, user's line, and during what, as for which key."""
        frames = list(reversed(traceback.extract_tb(why.__traceback__)))
        theirs = [frame for frame in frames if not Path(frame.filename).is_relative_to(_PACKAGE)]
        mine = file_of(self.fn)
        place = next((frame for frame in theirs if frame.filename == mine), theirs[0] if theirs else None)
        line = f" in {place.filename}:{place.lineno}" if place is not None else ""
        problem = why.what if isinstance(why, PenstockError) else f"{type(why).__name__}: {why}"
        return UserFunctionError(f"{self.step}: {problem} ({during}){line}")
