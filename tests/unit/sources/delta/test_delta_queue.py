"""Places are numbers of rows: whatever is cut, dropped and begun again, each row has the same one."""

from __future__ import annotations

import json

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sources.delta.actions import DataFile
from penstock.sources.delta.queue import Queue, Spot
from penstock.sources.delta.tasks import Piece


def file(version: int, index: int, rows: int, size: int = 100) -> DataFile:
    return DataFile(version, index, f"{version}-{index}", size, rows, {})


def rows_in(pieces: list[Piece]) -> list[tuple[int, str, int]]:
    """Return place, file and number of each row."""
    return [(p.place + i, p.path, p.first + i) for p in pieces for i in range(p.last - p.first)]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=5), st.lists(st.integers(0, 6)), st.booleans())
def test_any_steps_give_the_rows_of_all_files_in_order(
    versions: list[list[int]],
    steps: list[int],
    restarts: bool,  # noqa: FBT001 - hypothesis gives it by name
) -> None:
    """The model is the list of all rows; a position goes through the log, and may begin a new queue."""
    made = [[file(v, i, rows) for i, rows in enumerate(sizes)] for v, sizes in enumerate(versions)]
    model = [(f.path, n) for each in made for f in each for n in range(f.rows or 0)]

    def queue_at(spot: Spot) -> Queue:
        queue = Queue(spot)
        for version in range(spot.version, len(made)):
            queue.append(version, made[version])
        return queue

    queue, seen = queue_at(Spot(0, 0)), list[tuple[int, str, int]]()
    for step in [*steps, len(model)]:
        count = min(step, queue.rows)
        assert queue.rows == len(model) - len(seen)
        seen += rows_in(queue.pieces(count)[0])
        spot = Spot.of(json.loads(json.dumps(queue.after(count).as_json)))
        queue.advance(spot)
        if restarts:
            queue = queue_at(spot)
    assert seen == [(place, path, n) for place, (path, n) in enumerate(model)]
    assert (queue.spot.version, queue.rows, queue.bytes) == (len(made), 0, 0)


def test_a_head_is_so_many_files_or_bytes_and_one_at_least() -> None:
    """A file that was read in part counts as the rest of it."""
    queue = Queue(Spot(4, 1, index=1, row=2))
    queue.append(1, [file(1, 0, 4), file(1, 1, 4), file(1, 2, 4)])
    queue.append(2, [file(2, 0, 4, size=1_000)])
    assert (queue.rows, queue.bytes) == (10, 1_150)
    assert [f.path for f in queue.head(2, None)] == ["1-1", "1-2"]
    assert [f.path for f in queue.head(None, 150)] == ["1-1", "1-2"]
    assert [f.path for f in queue.head(9, 10)] == ["1-1"]
    assert queue.head_ends(1, None) == [(6, 50)]
    assert queue.head_ends(3, None) == [(6, 50), (10, 100), (14, 1_000)]


def test_rows_that_are_lost_keep_their_places() -> None:
    """So a place that was fixed as the end of a run stays what it was."""
    first, second = file(1, 0, 2), file(1, 1, 2)
    queue = Queue(Spot(0, 1))
    queue.append(1, [first, second])
    queue.lose(first)
    there, lost = queue.pieces(3)
    assert (rows_in(there), rows_in(lost)) == ([(2, "1-1", 0)], [(0, "1-0", 0), (1, "1-0", 1)])
    assert queue.rows == 4


def test_the_rest_of_a_snapshot_is_read_as_one() -> None:
    """Until it is read, and no longer."""
    queue = Queue(Spot(0, 5, snapshot=True))
    queue.append(5, [file(5, 0, 2)])
    queue.append(6, [file(6, 0, 2)])
    spots = [queue.after(rows) for rows in range(5)]
    assert [(s.version, s.row, s.snapshot) for s in spots] == [
        (5, 0, True), (5, 1, True), (6, 0, False), (6, 1, False), (7, 0, False)
    ]  # fmt: skip
