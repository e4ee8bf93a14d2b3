"""Detect the death of Spark's Java process in the errors that follow from it (F05)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from penstock.errors import EngineGone, Fenced

__all__ = ["naming_the_dead"]

_REAPED = 5.0
"""Seconds that a process which has closed its connections may take to be gone for its parent."""
_KILLED = 128
"""Above it, an exit code of a shell is a signal that has ended what it ran."""
_LAUNCH = "launch_gateway"


@contextmanager
def naming_the_dead() -> Iterator[None]:
    """Raise EngineGone in place of any error that comes of a Java process that has died, while it starts or later.

    The kernel ends one that takes too much memory, which is no fault of the installation and may go well next time.
    """
    try:
        yield
    except (EngineGone, Fenced):
        raise
    except Exception as why:
        chain = _chain(why)
        if any(_of_java(link) for link in chain) and _is_gone(chain):
            raise EngineGone("the Java process of Spark has died") from why
        raise


def _chain(why: BaseException) -> list[BaseException]:
    chain = [why]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None and before not in chain:
        chain.append(before)
    return chain


def _of_java(why: BaseException) -> bool:
    return isinstance(why, ConnectionError | EOFError) or type(why).__module__.partition(".")[0] in {"py4j", "pyspark"}


def _is_gone(chain: list[BaseException]) -> bool:
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    running = getattr(getattr(context, "_gateway", None), "proc", None)
    if running is None:
        return any(_died_at_start(link) for link in chain)
    try:
        cut = any(isinstance(link, ConnectionError | EOFError) for link in chain)
        cut = cut or any(type(link).__name__ == "Py4JNetworkError" for link in chain)
        running.wait(_REAPED if cut else 0)
    except subprocess.TimeoutExpired:
        return False
    return True


def _died_at_start(why: BaseException) -> bool:
    """Return whether pyspark has waited for a Java process that a signal ended; only its own frame knows that one."""
    trace = why.__traceback__
    while trace is not None:
        frame: FrameType = trace.tb_frame
        started: Any = frame.f_locals.get("proc") if frame.f_code.co_name == _LAUNCH else None
        if isinstance(started, subprocess.Popen) and started.poll() is not None:
            return started.returncode < 0 or started.returncode > _KILLED
        trace = trace.tb_next
    return False
