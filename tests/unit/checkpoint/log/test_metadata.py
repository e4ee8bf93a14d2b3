"""The identity of a checkpoint: made once, never again."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from checkpoint_samples import own
from faulty_store import Fault, FaultyStore, Plan
from test_format import forged

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import PATH, Metadata, open_or_create, read_metadata
from penstock.checkpoint.storage import format as fileformat
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import CheckpointPartial, FormatTooNew, MetadataDamaged, MetadataMissing, NotFound


def test_a_checkpoint_keeps_its_identity() -> None:
    """The first opening makes it; later ones read it, whatever the time."""
    store = MemoryStore()
    with pytest.raises(NotFound):
        read_metadata(store)
    made = open_or_create(store, now=5)
    assert (made.created, made.format, str(uuid.UUID(made.uuid))) == (5, 1, made.uuid)
    assert open_or_create(store, now=9) == read_metadata(store) == made
    assert open_or_create(MemoryStore(), now=5).uuid != made.uuid


@pytest.mark.fault("F07", "F17")
def test_drivers_that_open_at_once_agree() -> None:
    """Whoever loses the create takes the winner's identity."""
    inner = MemoryStore()
    made: list[Metadata] = []

    def rival(*_: Any) -> None:
        made.append(open_or_create(inner, now=1))

    store = FaultyStore(inner, Plan(Fault.DELAYED, at=1, rival=rival))
    assert [open_or_create(store, now=2)] == made


@pytest.mark.fault("F17")
@pytest.mark.parametrize("left", [0, 7], ids=lambda slot: f"slot {slot} is left")
def test_a_log_without_metadata_is_never_given_a_new_identity(left: int) -> None:
    """A new uuid would publish old batches again; nothing is written."""
    store = MemoryStore()
    store.create(f"log/{left:012d}", b"x")
    with pytest.raises(MetadataMissing, match=PATH):
        open_or_create(store, now=1)
    assert store.list("") == [f"log/{left:012d}"]


def test_a_checkpoint_that_another_driver_makes_meanwhile_is_not_taken_for_damaged() -> None:
    """Between looking for the metadata and looking for the log."""
    inner = MemoryStore()
    made: list[Metadata] = []

    class Overtaken(FaultyStore):
        def exists(self, path: str) -> bool:
            if not made:
                made.append(open_or_create(inner, now=1))
                own(Log(inner))
            return super().exists(path)

    assert [open_or_create(Overtaken(inner), now=2)] == made


@pytest.mark.fault("F13", "F21", "F49")
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", MetadataDamaged),
        (fileformat.encode("metadata", {"uuid": "u", "format": 1}), MetadataDamaged),
        (fileformat.encode("status", {"uuid": "u", "format": 1, "created": 1}), MetadataDamaged),
        (forged(b"{}", kind="metadata", version=2), FormatTooNew),
    ],
    ids=["empty", "a field is missing", "another kind", "later format"],
)
def test_metadata_that_cannot_be_read_stops_the_job(data: bytes, error: type[Exception]) -> None:
    """It is neither replaced nor repaired."""
    store = MemoryStore()
    store.create(PATH, data)
    with pytest.raises(error):
        open_or_create(store, now=1)
    assert store.read(PATH) == data


@pytest.mark.fault("F23")
def test_metadata_survives_lost_answers() -> None:
    """One identity, and the one that is there."""
    inner = MemoryStore()
    made = open_or_create(FaultyStore(inner, Plan(Fault.AFTER, at=1)), now=1)
    assert read_metadata(inner) == made


@pytest.mark.fault("F17", "F18")
@pytest.mark.parametrize("kept", [True, False], ids=["metadata kept", "metadata gone"])
@pytest.mark.parametrize("part", ["state/hourly/0/000000000001.json", "staged/out/x.parquet", "snapshots/hourly/x"])
def test_a_checkpoint_of_which_the_log_is_gone_is_not_begun_anew(part: str, *, kept: bool) -> None:
    """Nothing is written: whoever finds the log again can put it back."""
    store = MemoryStore()
    if kept:
        open_or_create(store, now=5)
    store.create(part, b"x")
    files = dict(store._files)
    with pytest.raises(CheckpointPartial, match=f"the log is gone, and there is {part.split('/', maxsplit=1)[0]}"):
        open_or_create(store, now=9)
    assert store._files == files
    own(Log(store))
    if kept:
        assert open_or_create(store, now=9).created == 5


def test_a_copy_has_state_before_it_has_a_log() -> None:
    """An import is begun by its maker alone."""
    store = MemoryStore()
    store.create("state/hourly/0/000000000001.json", b"x")
    assert open_or_create(store, now=9, parent="theirs").parent == "theirs"
