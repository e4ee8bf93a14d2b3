"""A batch of a join emits its pairs by pieces, whatever the number of rows of a key."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from join_disk import JoinDisk
from join_runs import run_without_state, step_of

from penstock.operators import join_batch
from penstock.operators.join import JoinStep
from penstock.operators.protocol import Emit
from penstock.operators.whole_rows import WholeRows


def test_pairs_come_by_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of many rows is never held as pairs all at once, and the pieces are those pairs in order."""
    keys, n = pa.schema([("id", pa.string())]), 300
    step = step_of(keys)
    monkeypatch.setattr(join_batch, "MOST_ROWS", 1_000)
    emitted = [made for made in run_without_state(step, n) if isinstance(made, Emit)]
    assert [made.rows.num_rows for made in emitted] == [1_000] * 90
    pairs = [pair for made in emitted for pair in zip(*(made.rows[c].to_pylist() for c in "xy"), strict=True)]
    assert pairs == [(a, b) for b in range(n) for a in range(n)]


def test_pieces_are_cut_by_the_bytes_of_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of a long row make many pieces, though the mean row is short."""
    keys = pa.schema([("id", pa.string())])
    sides = [WholeRows(visible=pa.schema([*keys, (name, pa.string())]), keys=keys) for name in "xy"]
    step = JoinStep(name="pairs", inputs=tuple(sides), earliest=0, latest=0)
    monkeypatch.setattr(join_batch, "MOST_BYTES", 100_000)
    emitted = [
        made for made in run_without_state(step, 40, {"x": ["x" * 20_000] + ["x"] * 39}) if isinstance(made, Emit)
    ]
    assert sum(made.rows.num_rows for made in emitted) == 40 * 40
    assert max(made.rows.nbytes for made in emitted) < 150_000


@pytest.mark.parametrize("how", ["inner", "full"])
def test_a_key_with_100_000_matches_comes_by_pieces(tmp_path: Path, how: str) -> None:
    """From the state, with no more pairs at once than a piece has; an outer join notes each match once."""
    n, disk = 100_000, JoinDisk((0, 1_000_000), how, tmp_path)
    disk.batch([[("a", number, number) for number in range(n)], []], late=0, close=0)
    made = disk.batch([[], [("a", n, 7)]], late=0, close=0)
    assert made.pieces == [join_batch.MOST_ROWS, n - join_batch.MOST_ROWS]
    assert made.output == [("a", number, 7) for number in range(n)]
    assert disk.batch([[], []], late=2**62, close=2**62).output == []


def test_two_hot_sides_need_memory_for_one_piece() -> None:
    """4,000,000 pairs of 2,000 rows on each side are 100 MB, of which a piece is held at a time."""
    n, held, pairs, most = 2_000, pa.total_allocated_bytes(), 0, 0
    for made in run_without_state(step_of(pa.schema([("id", pa.string())])), n):
        if isinstance(made, Emit):
            pairs += made.rows.num_rows
            most = max(most, pa.total_allocated_bytes() - held)
    assert pairs == n * n
    assert most < 20_000_000
