"""Time the plan of a batch of ten new files in a folder that has a million old ones, flat and by date."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.beside_spark import scratch
from benchmarks.report import Claim, report
from penstock import seconds
from penstock.sources import Files, Text
from penstock.sources.backlog import ReadLimit, divide
from penstock.sources.base import Position
from penstock.sources.file.reader import FilesReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_folders"]

OLD = 1_000_000
NEW = 10
LOOKS = 7
A_FOLDER = 1_000


def run_folders(_spark: SparkSession, *, quick: bool) -> list[Claim]:
    """Read all old files into a position, then plan batches as files appear."""
    old = OLD // 10 if quick else OLD
    with report("folders") as results:
        rows, took = [], {}
        for shape, files in (("none", 0), ("by date", old), ("flat", old)):
            with scratch() as root:
                took[shape] = _measured(root, files, flat=shape == "flat")
            rows.append((f"{files:,} old files, {shape}", *took[shape]))
        title = "milliseconds to plan a batch of ten new files"
        results.table(title, ["folder", "first look", "new files", "nothing new"], rows)
        results.claim(Claim("a plan with old files by date", took["by date"][1], 50, " ms", at_most=True))
        return results.claims


def _measured(root: Path, old: int, *, flat: bool) -> tuple[float, float, float]:
    """Return the milliseconds of the first look of a run, of one with new files, and of one without."""
    _make_old(root, old, flat=flat)
    position = _all_read(root)
    reader = Files(root, format=Text(), settle=seconds(0)).open(None)
    first = _planned(reader, position)[1]
    (root / "day=new").mkdir()
    _planned(reader, position)
    new, idle = [], []
    for turn in range(LOOKS):
        time.sleep(2.1)  # folders that have just changed are listed once more
        _planned(reader, position)
        idle.append(_planned(reader, position)[1])
        for n in range(NEW):
            _touch(root / ("" if flat else "day=new") / f"new-{turn}-{n}")
        position, milliseconds = _planned(reader, position)
        assert position is not None
        assert position["files"] == old + NEW * (turn + 1)
        new.append(milliseconds)
    return first, min(new), min(idle)


def _make_old(root: Path, old: int, *, flat: bool) -> None:
    """Make old files, a thousand of one time. These are one file: to give a block back takes a disk milliseconds."""
    for number in range(old // A_FOLDER):
        folder = root if flat else root / f"day={number:04}"
        folder.mkdir(exist_ok=True)
        first = folder / f"part-{number:04}-000"
        _touch(first, at=number - 7_200)
        for more in range(1, A_FOLDER):
            (folder / f"part-{number:04}-{more:03}").hardlink_to(first)


def _touch(path: Path, at: float | None = None) -> None:
    with path.open("wb") as file:
        file.write(b"x\n")
    if at is not None:
        when = time.time() + at
        os.utime(path, (when, when))


def _all_read(root: Path) -> Position | None:
    """Return the position at which the old files were read, as if by one batch."""
    reader = Files(root, format=Text(), settle=seconds(0)).open(None)
    backlog = reader.backlog(None)
    return reader.position(None, {name: waiting.latest for name, waiting in backlog.items()})


def _planned(reader: FilesReader, position: Position | None) -> tuple[Position | None, float]:
    began = time.perf_counter()
    end = reader.position(position, divide(reader.backlog(position), ReadLimit()))
    if end != position:
        reader.span(position, end)
    return end, (time.perf_counter() - began) * 1_000
