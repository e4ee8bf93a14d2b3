"""Issue 20.8: which source and partition holds the watermark of a step back, since when, and why."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.checkpoint.log.entries import Commit, PartitionProgress, SourceProgress
from penstock.runtime.inspect.watermark_report import Reading, watermark_report

NOW = 100_000_000


def partition(highest: int | None, *, seen: int = NOW, idle: bool = False, gone: bool = False) -> PartitionProgress:
    return PartitionProgress(highest=highest, seen_at=seen, idle=idle, gone=gone)


def commit_of(
    sources: dict[str, dict[str, PartitionProgress]], ended: tuple[str, ...] = (), **marks: int | None
) -> Commit:
    return Commit.model_construct(
        time=NOW,
        sources={
            name: SourceProgress(position={}, partitions=parts, ended=name in ended) for name, parts in sources.items()
        },
        watermarks_out=marks,
        due=dict.fromkeys(marks, NOW + 1),
    )


def record_of(*reads: tuple[str, str, list[int]], **more: Any) -> dict[str, Any]:
    graph = [{"kind": kind, "name": name, "reads": above} for kind, name, above in reads]
    late = {name: {"max_out_of_order": 10, "idle_after": None} for kind, name, _ in reads if kind == "source"}
    return {"graph": graph, "event_time": late, **more}


TWO = (("source", "a", []), ("source", "b", []), ("window", "w", [0, 1]), ("window", "x", [1]), ("filter", "f", [3]))


def test_a_step_waits_for_the_slowest_partition_of_its_slowest_source() -> None:
    """2.1: the minimum over sources of the minimum over partitions, less what each source allows."""
    parts = {"a": {"0": partition(500), "1": partition(400, seen=NOW - 7)}, "b": {"0": partition(900)}}
    steps, sources = watermark_report(commit_of(parts, w=390, x=890), record_of(*TWO))
    held = {step.name: (step.held_by.source, step.held_by.partition.name, step.held_by.watermark) for step in steps}
    assert held == {"w": ("a", "1", 390), "x": ("b", "0", 890)}
    assert [(source.name, source.watermark) for source in sources] == [("a", 390), ("b", 890)]
    assert [(part.name, part.watermark) for part in sources[0].partitions] == [("1", 390), ("0", 490)]
    assert steps[0].waits_for == "a 1: nothing new, since 1970-01-01 00:01:39Z"


def test_a_source_without_event_time_is_not_listed() -> None:
    """2.1: it has no watermark, so it neither holds one back nor has "never had a row". Without a record nobody knows."""
    parts = {"a": {"0": partition(500)}, "files": {"0": partition(None)}}
    record = record_of(("source", "a", []), ("window", "w", [0]))
    assert [source.name for source in watermark_report(commit_of(parts, w=490), record)[1]] == ["a"]
    assert [source.name for source in watermark_report(commit_of(parts, w=490), {})[1]] == ["a", "files"]


@pytest.mark.parametrize(
    ("slow", "record", "reading"),
    [
        (partition(400), {}, Reading.READ),
        (partition(400, seen=NOW - 1), {}, Reading.WAITING),
        (partition(400), {"held_back": {"a": ["1"]}}, Reading.LIMITED),
        (partition(None, seen=NOW - 1), {}, Reading.UNREAD),
    ],
    ids=lambda value: value.name if isinstance(value, Reading) else "",
)
def test_a_partition_that_holds_says_why(slow: PartitionProgress, record: dict[str, Any], reading: Reading) -> None:
    """2.4: rows, none, those that a limit left, or none ever: only the last holds at the beginning of time."""
    parts = {"a": {"0": partition(500), "1": slow}}
    steps, _ = watermark_report(commit_of(parts, w=None), record_of(*TWO, **record))
    (step,) = steps
    assert (step.held_by.partition.name, step.held_by.partition.reading) == ("1", reading)
    assert step.held_by.watermark == (None if slow.highest is None else 390)


@pytest.mark.parametrize(("quiet", "reading"), [("idle", Reading.IDLE), ("gone", Reading.GONE)], ids=["idle", "gone"])
def test_a_partition_that_holds_nothing_is_shown_and_not_blamed(quiet: str, reading: Reading) -> None:
    """2.4: idle and gone partitions do not count; a source of these alone holds nothing, and 2.1 leaves its watermark."""
    parts = {"a": {"0": partition(500), "1": partition(1, **{quiet: True})}, "b": {"0": partition(1, **{quiet: True})}}
    steps, sources = watermark_report(commit_of(parts, w=490, x=None), record_of(*TWO))
    assert steps[0].held_by.partition.name == "0"
    assert steps[1].held_by is None
    assert sources[0].partitions[-1].reading is reading
    assert steps[1].waits_for is None
    assert [step.all_idle for step in steps] == [False, quiet == "idle"]
    assert steps[1].to_json()["all_idle"] is (quiet == "idle")


def test_a_source_that_has_ended_holds_nothing() -> None:
    """2.1: a bounded source that is read to its end stops counting."""
    parts = {"a": {"0": partition(5)}, "b": {"0": partition(900)}}
    steps, _ = watermark_report(commit_of(parts, ended=("a",), w=890), record_of(*TWO))
    assert steps[0].held_by.source == "b"


def test_the_rule_that_limits_a_source_is_named() -> None:
    """Issue 20.8: idle or limited; the rule is that of the newest batch (8)."""
    parts = {"a": {"0": partition(500)}}
    record = record_of(*TWO, limits={"bound": {"a": "max_rate"}}, held_back={"a": ["0"]})
    (step,), _ = watermark_report(commit_of(parts, w=490), record)
    assert "limited: it has rows that the newest batch left" in step.waits_for
    assert step.waits_for.endswith("limited by max_rate")
    assert step.to_json()["held_by"]["partition"]["reading"] == "limited"


def test_a_paused_source_is_said_to_be_paused() -> None:
    """2.4: a pause holds each partition back, also one that has no row and none that waits."""
    parts = {"a": {"0": partition(500), "1": partition(None), "2": partition(400, idle=True)}}
    record = record_of(*TWO, limits={"bound": {"a": "paused"}}, held_back={"a": ["0", "1"]})
    (step,), (source, *_) = watermark_report(commit_of(parts, w=None), record)
    assert [part.reading for part in source.partitions] == [Reading.PAUSED, Reading.PAUSED, Reading.IDLE]
    assert step.waits_for.startswith("a 1: paused: batches read nothing of it, since ")
    assert "limited" not in step.waits_for


def test_a_pause_is_said_also_of_a_source_in_which_no_row_waits() -> None:
    """2.4: nothing bounds it, and no row that came could be read."""
    record = record_of(*TWO, limits={"paused": True}, held_back={"a": ["0"]})
    (step,), (source, *_) = watermark_report(commit_of({"a": {"0": partition(500)}}, w=490), record)
    assert [part.reading for part in source.partitions] == [Reading.PAUSED]
    assert "limited" not in step.waits_for


def test_a_checkpoint_without_a_record_still_shows_its_partitions() -> None:
    """A driver of an older version, or one on another machine: then every step reads every source."""
    parts = {"a": {"0": partition(500)}, "b": {"0": partition(900)}}
    steps, sources = watermark_report(commit_of(parts, w=490), {"graph": "odd", "limits": 3, "event_time": None})
    assert steps[0].held_by.source in ("a", "b")
    assert [source.watermark for source in sources] == [None, None]
    assert watermark_report(None, {}) == ((), ())
