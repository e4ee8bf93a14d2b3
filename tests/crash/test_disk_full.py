"""The disk is really full: the system refuses bytes at each file in turn (F27).

A process lowers the largest file it may write (RLIMIT_FSIZE), which the system answers as it does a full disk, and
lifts the limit again for the restart. Limits from nothing to everything hit metadata, entries, segments, manifests
and output files.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from fake_engine import SECOND, World, make_driver, quick_folder, run_to_end
from test_damage import GRAPH, TIMES, SegmentEngine

from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import PenstockError
from penstock.sinks.staged_files import stage_table

LIMITS = [0, *range(100, 1_000, 60), *range(1_000, 4_000, 400), 10_000]


@contextmanager
def full(limit: int):
    """Let no file grow beyond so many bytes."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def start(world: World, name: str) -> None:
    """Start a job on disk and run it to its end."""
    assert world.root is not None
    store = LocalStore(world.root)
    metadata = open_or_create(store, now=SECOND)
    engine = SegmentEngine(world, GRAPH, name)
    run_to_end(make_driver(world, store, name, graph=GRAPH, engine=engine, uuid=metadata.uuid))


def run_on_full_disk(root: Path, limit: int) -> dict[str, object]:
    """Run a job whose disk is full, then again with room, and say what was found each time."""
    world = World(root=LocalFolder(root), times=TIMES)
    error = None
    with full(limit):
        try:
            start(world, "first")
        except PenstockError as raised:
            error = raised
    files = {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}
    early = {sink: len(table.shown) for sink, table in world.tables.items()}
    start(world, "second")
    return {
        "limit": limit,
        "error": type(error).__name__,
        "where": str(getattr(error, "where", None)),
        "exit": getattr(error, "exit_code", None),
        "temporary": [name for name in files if "/.tmp-" in name or name.startswith(".tmp-")],
        "largest": max(files.values(), default=0),
        "early": early,
        "raw": world.rows("raw"),
        "late": world.rows("late"),
    }


def staged(folder: Path) -> dict[str, object]:
    """Stage an output file on a full disk."""
    with full(100):
        try:
            stage_table(pa.table({"v": list(range(1_000))}), LocalFolder(folder), "000000000000-1-a-1-1-0.parquet")
        except PenstockError as error:
            return {"error": type(error).__name__, "where": error.where, "left": [p.name for p in folder.iterdir()]}
    return {}


def main(root: Path) -> None:
    """Print what each limit does, one JSON object a line."""
    for limit in LIMITS:
        print(json.dumps(run_on_full_disk(root / str(limit), limit)))  # noqa: T201 - what a child process says
    print(json.dumps(staged(root / "staged")))  # noqa: T201


@pytest.fixture(scope="module")
def outcomes() -> list[dict[str, object]]:
    """Return what the process found, limit by limit; the last line is about output files."""
    with quick_folder() as root:
        done = subprocess.run([sys.executable, __file__, str(root)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.fault("F27")
def test_a_full_disk_stops_the_job_and_is_named(outcomes: list[dict[str, object]]) -> None:
    """At the first file that does not fit; the supervisor is told that a retry may help."""
    stopped = [outcome for outcome in outcomes[:-1] if outcome["error"] != "NoneType"]
    assert {outcome["error"] for outcome in stopped} == {"StorageFull"}
    assert {outcome["exit"] for outcome in stopped} == {75}
    where = " ".join(str(outcome["where"]) for outcome in stopped)
    assert all(name in where for name in ("metadata.json", "log/0000", ".arrow", ".json"))
    assert outcomes[-2]["error"] == "NoneType", "the largest limit is large enough"


@pytest.mark.slow
@pytest.mark.fault("F27")
def test_a_full_disk_leaves_nothing_half_written(outcomes: list[dict[str, object]]) -> None:
    """No file is larger than what was allowed, and no temporary one is left."""
    assert all(outcome["temporary"] == [] for outcome in outcomes[:-1])
    assert all(int(str(outcome["largest"])) <= int(str(outcome["limit"])) for outcome in outcomes[:-1])
    assert outcomes[-1]["error"] == "StorageFull"
    assert outcomes[-1]["left"] == []


@pytest.mark.remedy("PEN-CKP-007")
@pytest.mark.fault("F27")
def test_the_job_goes_on_when_there_is_room_again(outcomes: list[dict[str, object]]) -> None:
    """With the same rows, each once; nothing of a batch without Commit had been shown."""
    whole = outcomes[-2]
    for outcome in outcomes[:-1]:
        assert (outcome["raw"], outcome["late"]) == (whole["raw"], whole["late"]) == (list(range(len(TIMES))), [5])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
