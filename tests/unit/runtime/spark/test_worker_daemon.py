"""What Spark's Python workers carry along: every collection of garbage, one a task, looks through it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SCRIPT = """
import gc, json
from penstock.runtime.spark import worker_daemon

kept, seen = [], []

def task(infile, outfile):
    if len(seen) in (0, 4):  # what a task imports, or makes once
        kept.append([[] for _ in range(20_000)])

worker_daemon._run_task = task
gc.collect()
gc.freeze()
for _ in range(10):
    worker_daemon.run_task(None, None)
    seen.append(len(gc.get_objects()))
    gc.collect()
print(json.dumps(seen))
"""


@pytest.mark.slow
def test_what_tasks_leave_for_good_is_looked_through_a_few_times_only() -> None:
    """Behind the first task, and behind the eighth what the fifth has made: not behind every one from then on."""
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=100)
    seen = json.loads(ran.stdout)
    assert [count > 20_000 for count in seen] == [True, *[False] * 3, *[True] * 4, False, False], seen


MEMORY = """
import json
from pathlib import Path
from penstock.runtime.spark import worker_daemon

kept, seen = [], []

def task(infile, outfile):
    if not kept:
        blocks = [bytearray(32 * 1024) for _ in range(2_000)]
        kept.append(blocks[-1])  # C's allocator gives back by itself what is free at the end only

worker_daemon._run_task = task
for _ in range(worker_daemon.RELEASE_EVERY):
    worker_daemon.run_task(None, None)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    seen.append(pages * 4 // 1024)
print(json.dumps(seen))
"""


@pytest.mark.slow
def test_memory_that_tasks_have_freed_is_returned() -> None:
    """62 MiB of freed blocks below one that is kept stay with the worker for so many tasks, and no longer."""
    ran = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, timeout=100)
    *before, after = json.loads(ran.stdout)
    assert min(before) - after > 50, (before, after)


FAULTS = """
import json, resource, sys
import numpy as np
from penstock.runtime.spark import worker_daemon

if sys.argv[1] == "kept":
    worker_daemon.keep_freed_memory()
for _ in range(20):
    arrays = [np.ones(1_000_000) for _ in range(5)]
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_a_worker_uses_the_memory_of_freed_arrays_again() -> None:
    """The system hands out 800 MB page by page otherwise; in a worker 40 MB once."""
    run = [sys.executable, "-c", FAULTS]
    kept, plain = (
        int(subprocess.run([*run, how], capture_output=True, text=True, check=True, timeout=100).stdout)
        for how in ("kept", "plain")
    )
    assert plain - kept > 10_000, (kept, plain)


ARCHIVES = """
import importlib, json, sys, zipimport
import packed.inside
from penstock.runtime.spark import worker_daemon

read = []
plain = zipimport._read_directory
zipimport._read_directory = lambda archive: read.append(archive) or plain(archive)
worker_daemon.forget_archives()
importlib.invalidate_caches()  # what Spark does in each new worker
looked = len(read)
import packed.later
print(json.dumps([looked, packed.later.X, "pydantic" in sys.modules]))
"""


@pytest.mark.slow
def test_a_new_worker_reads_no_archive_again(tmp_path: Path) -> None:
    """Python would read the list of a zip archive once for each package in it; what stands in it is still found.

    Nor does the daemon import what only drivers need.
    """
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name, text in (("__init__", ""), ("inside", ""), ("later", "X = 3")):
            file.writestr(f"packed/{name}.py", text)
    path = os.pathsep.join([str(archive), os.environ["PYTHONPATH"]])
    command = [sys.executable, "-c", ARCHIVES]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=100, env={**os.environ, "PYTHONPATH": path}
    )
    assert json.loads(ran.stdout) == [0, 3, False]


@pytest.fixture
def short() -> Iterator[str]:
    """A folder whose path leaves room for the name of a socket: 108 characters are all there are."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


@pytest.mark.slow
def test_an_idle_worker_that_java_leaves_says_nothing(short: str) -> None:
    """The daemon as Spark starts it: a worker whose socket closes, before or within a task, prints no traceback."""
    with started(short) as (daemon, path):
        assert daemon.stdin is not None
        assert daemon.stderr is not None
        for sent in (b"", b"\x00\x00\x00\x06secret", b"\x00\x00\x00\x06secret\x00\x00\x00\x01"):
            with socket.socket(socket.AF_UNIX) as worker:
                worker.settimeout(100)
                worker.connect(path)
                pid = int.from_bytes(worker.recv(4), "big")
                worker.sendall(sent)
            wait_until_gone(pid)
        daemon.stdin.close()
        daemon.wait(100)
        assert daemon.stderr.read().decode() == ""


@pytest.mark.slow
def test_a_daemon_in_a_folder_too_deep_for_sockets_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container of YARN has its temporary folder in its working folder, whose path alone is longer than a socket's.

    Java runs in that folder as well.
    """
    container = tmp_path / "usercache" / ("application_" + "1" * 50) / ("container_" + "1" * 50)
    (container / "tmp").mkdir(parents=True)
    monkeypatch.chdir(container)
    with started(str(container / "tmp")) as (daemon, path):
        with socket.socket(socket.AF_UNIX) as worker:
            worker.settimeout(100)
            worker.connect(path)
            assert int.from_bytes(worker.recv(4), "big") > 0
        assert daemon.stdin is not None
        daemon.stdin.close()
        daemon.wait(100)
    assert not list((container / "tmp").iterdir())


@contextmanager
def started(folder: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Start the daemon as Spark does, with sockets in a folder; yield it, and the path that it tells Java."""
    env = {
        **os.environ,
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": folder,
        "PYTHON_WORKER_FACTORY_SECRET": "secret",
        "SPARK_REUSE_WORKER": "1",
    }
    command = [sys.executable, "-m", "penstock.runtime.spark.worker_daemon", "pyspark.worker"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=env) as daemon:
        assert daemon.stdout is not None
        yield daemon, daemon.stdout.read(int.from_bytes(daemon.stdout.read(4), "big")).decode()


def wait_until_gone(pid: int) -> None:
    """Wait until a worker has ended, so that the daemon's end does not cut off what it would print."""
    for _ in range(1_000):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"worker {pid} lives")
