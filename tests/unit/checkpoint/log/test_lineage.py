"""Which kept batches a batch goes on from, against the definition (SEMANTICS 10.1)."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.log.entries import Commit, Place, Restore
from penstock.checkpoint.log.recovery import line_of, lineage


@given(st.lists(st.none() | st.integers(-1, 12), max_size=25))
def test_a_line_is_what_was_in_force_when_its_batch_was_committed(events):
    """A number goes back to that batch, -1 to nothing, None commits the next batch; a batch not kept is nothing."""
    kept, restores, batch, in_force, lines = [], [], 0, frozenset(), {}
    for slot, event in enumerate(events):
        if event is None:
            kept.append(Commit.model_construct(batch=batch, place=Place(slot=slot)))
            in_force |= {batch}
            lines[batch] = in_force
            batch += 1
        else:
            restores.append(Restore.model_construct(batch=None if event < 0 else event, place=Place(slot=slot)))
            in_force = lines.get(event, frozenset())
    recovered = SimpleNamespace(kept=kept, restores=restores)
    batch_lines = lineage(recovered)
    assert {number: batch_lines.line(number) for number in lines} == lines
    assert line_of(recovered) == in_force
    assert batch_lines.line(None) == batch_lines.line(batch) == frozenset()
