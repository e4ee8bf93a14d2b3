"""The entries of the log: what they take, and that they come back as they were."""

from __future__ import annotations

from typing import Any

import pytest
from checkpoint_samples import commit, offsets, takeover
from pydantic import ValidationError

from penstock.checkpoint.log.entries import (
    END_OF_TIME,
    Arrival,
    Entry,
    ManifestRef,
    Moved,
    PartitionProgress,
    Place,
    Release,
    Restore,
    Save,
    SourceProgress,
    StagedFile,
    StepWatermarks,
    Void,
    from_bytes,
    to_bytes,
)
from penstock.checkpoint.storage import format as fileformat
from penstock.errors import CheckpointCorrupt, EntryRefused, FormatTooNew

FULL_COMMIT = commit(
    7,
    state={"hourly": {"0": ManifestRef(path="state/hourly/0/m", size=10, checksum="ab")}},
    staged={"out": [StagedFile(path="p", size=1, rows=2, checksum="cd", stats={"min": {"a": None}}, fails=["r1"])]},
    verdicts=[{"rule": "not_null", "observed": 0.5}],
    sources={
        "orders": SourceProgress(
            position={"row": 5}, ended=True, partitions={"0": PartitionProgress(highest=None, seen_at=5, idle=True)}
        )
    },
    watermarks_out={"orders": END_OF_TIME, "hourly": None},
    due={"hourly": None},
    accounting={"orders": {"read": 5}},
    timings={"compute": 1.25},
    published={"out": 6},
    command="dag:run:task",
    place=Place(slot=3, takeover=1, saves={"before": 2}),
)

ENTRIES: list[Entry] = [
    takeover(),
    offsets(7, watermarks={"hourly": StepWatermarks(late=None, close=END_OF_TIME)}, limits={"rows": None}),
    FULL_COMMIT,
    Restore(epoch=1, writer="w", batch=3, source="batch", saved=None, partitions={"hourly": 4}),
    Restore(epoch=1, writer="w", batch=None, source="empty", saved=None, partitions=None),
    Save(epoch=2, writer="w", name="before", commit=FULL_COMMIT),
    Void(epoch=1, writer="w", slot=9, reason="torn", batch=None),
    Release(epoch=1, writer="w", reason="stopped"),
    Moved(epoch=1, writer="w", to="/there"),
    Arrival(epoch=1, writer="w", source="/here"),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.kind)
def test_entries_come_back_as_they_were(entry: Entry) -> None:
    """Equal values of the same class, and the same bytes again."""
    data = to_bytes(entry)
    back = from_bytes(data, "p")
    assert (type(back), back) == (type(entry), entry)
    assert to_bytes(back) == data


@pytest.mark.fault("F21")
@pytest.mark.parametrize("entry", ENTRIES[-2:], ids=lambda entry: entry.kind)
def test_what_ends_a_log_is_of_a_later_format(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Penstock that knows nothing of moves says so; as damage, it might give the entry up and go on."""
    data = to_bytes(entry)
    monkeypatch.setattr(fileformat, "LATER_KINDS", {})
    with pytest.raises(FormatTooNew, match="format version 2; this Penstock reads up to 1"):
        from_bytes(data, "p")


@pytest.mark.parametrize(
    "change",
    [
        {"batch": "7"},
        {"batch": 7.0},
        {"batch": True},
        {"batch": -1},
        {"epoch": 0},
        {"time": None},
        {"timings": {"compute": float("nan")}},
        {"verdicts": [{"observed": float("inf")}]},
        {"verdicts": [{"rule": {1, 2}}]},
        {"colour": "red"},
        {"state": {"hourly": {0: ManifestRef(path="p", size=1, checksum="c")}}},
    ],
    ids=str,
)
def test_fields_take_their_own_types_only(change: dict[str, Any]) -> None:
    """A wrong type, a number out of range, NaN or an unknown field is refused when the entry is made."""
    with pytest.raises(ValidationError):
        commit(**{"batch": 7} | change)


def test_entries_are_values() -> None:
    """An entry does not change once it is made."""
    with pytest.raises(ValidationError, match="frozen"):
        commit(7).batch = 8


@pytest.mark.fault("F13", "F49")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"kind": "release"},
        {"kind": "commit", "epoch": 1, "writer": "w", "reason": "r"},
        {"kind": "explode", "epoch": 1, "writer": "w", "reason": "r"},
        {"kind": "release", "epoch": 1, "writer": "w", "reason": "r", "more": 1},
        {"kind": "release", "epoch": "1", "writer": "w", "reason": "r"},
    ],
    ids=str,
)
def test_bodies_of_another_shape_are_damage(body: dict[str, Any]) -> None:
    """A body with right checksums and wrong fields is refused with its path."""
    with pytest.raises(CheckpointCorrupt) as caught:
        from_bytes(fileformat.encode("release", body), "log/000000000007")
    assert caught.value.where == "log/000000000007"


def test_an_entry_under_the_header_of_another_kind_is_damage() -> None:
    """Header and body name the same kind."""
    body = {"kind": "release", "epoch": 1, "writer": "w", "reason": "r"}
    with pytest.raises(CheckpointCorrupt, match="a release entry under the header of a commit"):
        from_bytes(fileformat.encode("commit", body), "p")


def test_an_entry_that_is_too_deep_is_not_written() -> None:
    """A source's own JSON is bounded like everything else."""
    deep: Any = 1
    for _ in range(fileformat.MAX_DEPTH):
        deep = [deep]
    with pytest.raises(EntryRefused):
        to_bytes(offsets(7, settings={"deep": deep}))
