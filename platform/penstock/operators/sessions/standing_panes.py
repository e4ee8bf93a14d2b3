"""Follow the panes of open sessions that a table by keys has, until others replace them (SEMANTICS 2.6, 3.2).

Such a table has the newest pane of an open session. Once the session has rows that no pane has had, or is one with
another, its state tells no more what the table has. So the row of the state from which the step made the pane stays
beside it, as a standing pane. That is a row of the part `sessions` with a number of its own among those of the key. The
batch that emits the session next emits a row that takes the pane back, as it was, and deletes the standing pane.

A session that has no rows but those of its pane is that row itself, and needs no other.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.operators.columns import integers
from penstock.operators.sessions.session_layout import BOUNDS, SessionLayout, micros_of
from penstock.operators.sessions.session_spans import Spans, merged_spans
from penstock.state.keys import Bools, Ints
from penstock.state.row_layout import GROUP

__all__ = ["StandingPanes"]


class StandingPanes:
    """The standing panes among the rows that the state has of some keys; `held` are the sessions.

    `keys` and `key_of_held` number the keys of both. `taken_back` are the rows that the batch takes back, and `begun`
    those of the state that are standing panes from now on.
    """

    def __init__(self, layout: SessionLayout, rows: pa.Table, keys: Ints) -> None:
        stands = layout.standing_of(rows)
        self.rows, self.held, self.keys, self.key_of_held = rows.slice(0, 0), rows, keys[:0], keys
        if stands.any():
            self.rows, self.held = rows.filter(pa.array(stands)), rows.filter(pa.array(~stands))
            self.keys, self.key_of_held = keys[stands], keys[~stands]
        self.slots = integers(self.rows, GROUP)
        self.stays = np.ones(len(self.keys), dtype=np.bool_)
        self.taken_back = self.begun = self.held.slice(0, 0)
        self.keys_of_begun = keys[:0]
        self.layout, self._of = layout, self._sessions(rows, keys, stands)

    def _sessions(self, rows: pa.Table, keys: Ints, stands: Bools) -> Ints:
        """Return the place in `held` of the session in which each pane lies; sessions of a key do not touch."""
        if not stands.any():
            return np.empty(0, dtype=np.int64)
        spans = merged_spans(keys, *(micros_of(rows, name) for name in BOUNDS.names))
        session = np.empty(spans.total, dtype=np.int64)
        session[spans.ids[~stands]] = np.arange(self.held.num_rows)
        of: Ints = session[spans.ids[stands]]
        return of

    def join(self, spans: Spans, joined: Ints, *, passing: Bools, bare: Bools, emits: Bools, changed: Bools) -> None:
        """Find out which rows the batch takes back, and which standing panes it leaves.

        Args:
            spans: The sessions that the batch makes.
            joined: The places in `held` of their parts, which are the first of `spans.ids`.
            passing: Which of `held` close without the batch's rows.
            bare: Which of `held` are as their newest pane has them, and open.
            emits: Which of `spans` are emitted.
            changed: Which of `spans` got rows.
        """
        # The last place is for those that are forgotten, which are in no session any more.
        of_held = np.full(self.held.num_rows, -1, dtype=np.int64)
        of_held[joined] = spans.ids[: len(joined)]
        emitted, grown = np.append(emits, False)[of_held], np.append(changed, False)[of_held]
        bounds = [micros_of(self.held, name) for name in BOUNDS.names]
        after = [np.append(ends, 0)[of_held] for ends in (spans.starts, spans.ends)]
        moves = (bounds[0] != after[0]) | (bounds[1] != after[1])
        passes = passing[self._of]
        of_panes = [micros_of(self.rows, name) for name in BOUNDS.names]
        now = [np.where(passes, was[self._of], is_now[self._of]) for was, is_now in zip(bounds, after, strict=True)]
        replaced = passes | emitted[self._of]
        moved = replaced & ((of_panes[0] != now[0]) | (of_panes[1] != now[1]))
        self.stays = ~replaced
        gone = self.held.filter(pa.array(bare & emitted & moves))
        self.taken_back = pa.concat_tables([self.rows.filter(pa.array(moved)), gone]).combine_chunks()
        begins = bare & grown & ~emitted & self.layout.retracts
        self.begun, self.keys_of_begun = self.held.filter(pa.array(begins)), self.key_of_held[begins]
