"""What the list of checkpoints says of state: rows and bytes that are stored, and whether all of it is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkpoint_samples import commit, offsets, own
from typer.testing import CliRunner

from penstock.checkpoint.log.entries import Commit, ManifestRef, Save
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.main import app
from penstock.runtime.inspect.job_status import StepState, StoredStates
from penstock.state.manifest import Manifest, Run
from penstock.state.references import Piece, segment_name


def written(folder: Path, batch: int, *, rows: int, size: int, partition: int = 0, step: str = "w") -> ManifestRef:
    """Write a manifest of one segment, and the segment, and return what a Commit names it by."""
    place = folder / "state" / step / str(partition)
    place.mkdir(parents=True, exist_ok=True)
    base = segment_name(batch, epoch=1, attempt=partition, run="0123456789abcdef")
    name = f"{base}.arrow"
    piece = Piece(name, 0, size, 0, 0, "", rows, (0, 0), (0, 9), None)
    made = Manifest(
        step=step,
        partition=partition,
        keys=("k",),
        batch=batch,
        chains={"state": (Run(0, batch, (piece,)),)},
        sizes={name: size},
    )
    (place / name).write_bytes(bytes(size))
    data = made.to_bytes()
    path = place / f"{base}.json"
    path.write_bytes(data)
    return ManifestRef(path=path.name, size=len(data), checksum=made.checksum)


def with_state(folder: Path, batch: int, **other: int) -> Commit:
    refs = {str(n): written(folder, batch, partition=n, rows=3 + batch, size=100) for n in range(2)}
    return commit(batch, state={"w": refs}, **other)


def test_rows_and_bytes_are_those_of_all_partitions(tmp_path: Path) -> None:
    """By step, and together."""
    done = with_state(tmp_path, 4)
    more = written(tmp_path, 4, step="seen", rows=1, size=10)
    stored = StoredStates(tmp_path).of(done.model_copy(update={"state": {**done.state, "seen": {"0": more}}}))
    assert stored.steps == {"w": StepState(rows=14, size=200), "seen": StepState(rows=1, size=10)}
    assert (stored.rows, stored.size, stored.trouble) == (15, 210, None)
    assert stored.to_json()["steps"] == {
        "w": {"stored_rows": 14, "bytes": 200},
        "seen": {"stored_rows": 1, "bytes": 10},
    }


@pytest.mark.parametrize(
    ("pattern", "harm", "reason"),
    [("*.json", Path.unlink, "json is gone"), ("*.arrow", Path.unlink, "arrow is gone")],
    ids=["a manifest", "a segment"],
)
def test_what_is_gone_is_named(pattern: str, harm, reason: str, tmp_path: Path) -> None:
    """A manifest that is there does not make up for the files it names."""
    done = with_state(tmp_path, 4)
    harm(next((tmp_path / "state" / "w" / "1").glob(pattern)))
    trouble = StoredStates(tmp_path).of(done).trouble
    assert trouble is not None
    assert trouble.startswith("state/w/1/")
    assert trouble.endswith(reason)


def test_a_manifest_that_is_damaged_is_no_state_to_go_back_to(tmp_path: Path) -> None:
    """What can be counted is."""
    done = with_state(tmp_path, 4)
    path = next((tmp_path / "state" / "w" / "1").glob("*.json"))
    path.write_bytes(path.read_bytes()[:-3])
    stored = StoredStates(tmp_path).of(done)
    assert (stored.rows, stored.trouble) == (7, f"state/w/1/{path.name} is damaged")


def test_the_list_has_kept_and_saved_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is older than what is kept can be named by its saved name only."""
    from project_samples import make_project

    project = make_project(tmp_path, rows=1)
    monkeypatch.chdir(project)
    folder = project / "checkpoints" / "orders"
    folder.mkdir(parents=True, mode=0o700)
    (project / "checkpoints").chmod(0o700)
    store = LocalStore(folder)
    open_or_create(store, now=0)
    owned = own(Log(store))
    owned.append(offsets(0))
    first = owned.append(with_state(folder, 0))
    owned.append(Save(epoch=1, writer="w1", name="first", commit=first))
    owned.append(offsets(1))
    owned.append(with_state(folder, 1, floor=1))
    next((folder / "state" / "w" / "0").glob("000000000001-*.arrow")).unlink()
    lines = [line.split() for line in CliRunner().invoke(app, ["checkpoints", "orders"]).stdout.splitlines()]
    assert lines[0][-5:] == ["rows", "state", "MiB", "watermark", "restorable"]
    assert (lines[1][0], lines[1][8:10], lines[1][-4:]) == ("0", ["6", "0.00"], ["yes", "(only", "as", "first)"])
    assert (lines[2][0], lines[2][8:10], lines[2][-2:]) == ("1", ["8", "0.00"], ["is", "gone"])
    listed = json.loads(CliRunner().invoke(app, ["checkpoints", "orders", "--json"]).stdout)["checkpoints"]
    assert [(c["batch"], c["kept"], c["restorable"], c["state"]["stored_rows"]) for c in listed] == [
        (0, False, True, 6),
        (1, True, False, 8),
    ]
