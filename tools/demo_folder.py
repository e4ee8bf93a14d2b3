"""Give a demo a folder of its own, which one demo at a time uses, and end the demo by a signal as by Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from tools.demo_stream import DemoFailed

__all__ = ["empty", "environment", "run_in", "scratch"]

_LOCK = "lock"


def run_in(folder: Path, demo: Callable[[Console], int], *, failures: tuple[type[Exception], ...] = ()) -> int:
    """Return the exit code of a demo: its own, 1 where it fails or another one runs, 130 where it is interrupted.

    `failures` are errors beside DemoFailed and OSError whose text says enough.
    """
    expected: tuple[type[Exception], ...] = (DemoFailed, OSError, *failures)
    console = Console(width=None if sys.stdout.isatty() else 80)
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / _LOCK).open("w") as lock, _interrupted_by(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"another demo runs in {folder}", highlight=False)
            return 1
        try:
            return demo(console)
        except KeyboardInterrupt:
            console.print("\ninterrupted; nothing is left running", highlight=False)
            return 130
        except expected as problem:
            console.print(f"\n{problem}", highlight=False, markup=False, soft_wrap=True)
            return 1


def empty(folder: Path) -> None:
    """Remove what the last demo left, but the lock that we hold."""
    for path in folder.iterdir():
        if path.name == _LOCK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a folder for what Spark leaves in the system's temporary one, and remove it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(temporary: Path, checkpoints: Path) -> dict[str, str]:
    """Return our own environment for a demo's supervisor, drivers and commands.

    All that Spark would leave in the system's temporary folder is in `temporary`. `checkpoints` is the root of every
    job: the supervisor would start the streams of another demo that was interrupted.
    """
    options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={temporary}".strip()
    ours = {"TMPDIR": str(temporary), "SPARK_LOCAL_DIRS": str(temporary), "SPARK_SUBMIT_OPTS": options}
    python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    return {**os.environ, **python, **ours, "PENSTOCK_CHECKPOINT_ROOT": str(checkpoints)}


@contextmanager
def _interrupted_by(*numbers: signal.Signals) -> Iterator[None]:
    """Let these signals end the demo as Ctrl-C does, so that what it started is ended as well."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
