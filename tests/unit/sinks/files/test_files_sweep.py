"""Upkeep of a folder of files deletes what a killed process has left, and nothing that anybody reads or writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.sinks import JsonLines, Parquet
from penstock.sinks.base import Needed, Target, Upkeep
from penstock.sinks.files.folders import LocalOutput
from penstock.sinks.files.manifest import BatchFile, Manifest, key_of

APP = "uuid/out"
NOW = 2_000_000_000.0
TEMP = ".tmp-" + "0123456789abcdef" * 2


def put(root: Path, path: str, *, age: float = 7_200) -> None:
    """Write a file of four bytes that is so many seconds old."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(b"rows")
    os.utime(root / path, (NOW - age, NOW - age))


def left(root: Path) -> set[str]:
    """Return the files below a folder."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.fault("F01")
def test_files_that_were_half_written_go_when_nobody_can_write_them_any_more(tmp_path: Path) -> None:
    """In partitions and in the manifest as well; younger ones, and those of other programs, stay."""
    old = {TEMP, f"day=1/{TEMP}", f"day=1/hour=2/{TEMP}", f"_penstock/batches/{key_of(APP)}/{TEMP}"}
    others = {"data.parquet", ".tmp-notes", f"archive/{TEMP}", f"day=1/{TEMP}.parquet"}
    for path in old | others:
        put(tmp_path, path)
    put(tmp_path, f"day=2/{TEMP}", age=60)
    done = Parquet(tmp_path).maintain(Needed(), now=NOW)
    assert done == Upkeep(deleted=4, size=16)
    assert left(tmp_path) == {*others, f"day=2/{TEMP}"}
    assert Parquet(tmp_path / "none").maintain(Needed(), now=NOW) == Upkeep()


@pytest.mark.fault("F54")
def test_files_go_that_a_fenced_driver_wrote_after_a_restore_took_their_batch_back(tmp_path: Path) -> None:
    """By batch and app; those of other batches and apps stay."""
    folder = LocalOutput(str(tmp_path))
    names = [f"{batch:012d}-{key_of(app)}.jsonl" for app in (APP, "uuid/other") for batch in range(3)]
    of_task = f"{1:012d}-{key_of(APP)}-0003.jsonl"
    put(tmp_path, of_task)
    for batch, name in enumerate(names[:2]):
        Manifest(folder, APP).add(batch, [BatchFile(path=name, rows=1, size=4, sha256="x")])
    JsonLines(tmp_path).put_back(Target(app=APP, batch=0, slot=3), 0, slot=9, newest=1)
    for name in names:
        put(tmp_path, name)
    assert JsonLines(tmp_path).maintain(Needed(), now=NOW).deleted == 2
    assert left(tmp_path) >= {*names} - {names[1]}
    assert {names[1], of_task}.isdisjoint(left(tmp_path))


KILLED = """
import sys
from penstock.checkpoint.storage import local
from penstock.sinks.files.folders import LocalOutput
def hangs(handle):
    print("written", flush=True)
    sys.stdin.read()
local.os.fsync = hangs
LocalOutput(sys.argv[1]).create("a.jsonl", b"rows")
"""


@pytest.mark.slow
@pytest.mark.fault("F01")
def test_a_process_that_is_killed_while_it_writes_leaves_no_file_for_ever(tmp_path: Path) -> None:
    """SIGKILL before the file has its name: no reader sees it, and upkeep deletes it an hour later."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
    (name,) = left(tmp_path)
    assert name.startswith(".tmp-")
    assert JsonLines(tmp_path).maintain(Needed(), now=time.time()).deleted == 0
    assert JsonLines(tmp_path).maintain(Needed(), now=time.time() + 4_000).deleted == 1
    assert left(tmp_path) == set()
