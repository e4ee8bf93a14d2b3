"""Keep for each key of windows of rows its last end and its last row, and forget keys whose TTL is over."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.columns import integers
from penstock.operators.functions.key_index import NONE, behind
from penstock.operators.protocol import StateView, StepFacts
from penstock.operators.tuple_windows.tuple_layout import FIRED, IDLE, KEYS, SEEN, TupleLayout, micros
from penstock.state.keys import Bools, Ints
from penstock.state.row_layout import DELETED, GROUP, HASH
from penstock.time.clock import END_OF_TIME

__all__ = ["TTL", "KeyLedger", "TtlChange", "changed_ttl", "facts_of_ttl"]

_UTC = pa.timestamp("us", tz="UTC")
TTL = "ttl"
"""The fact that has the TTL of the keys of a partition's state, in microseconds; null for none."""


class TtlChange(Enum):
    """How a TTL differs from that of the state."""

    NONE = auto()
    """It is the same, or longer: the entries of the keys find them early enough."""
    NEW = auto()
    """There was none, so nobody knows when the last row of a key came."""
    SHORTER = auto()
    """A key may be over before its entry is due."""
    GONE = auto()
    """There is none any more, and rows date no key from now on."""


def changed_ttl(state: StateView, idle: int | None) -> TtlChange:
    """Return how a TTL in microseconds differs from that of the state."""
    was = _ttl_of(state)
    if was == idle:
        return TtlChange.NONE
    if idle is None:
        return TtlChange.GONE
    if was is None:
        return TtlChange.NEW
    return TtlChange.NONE if was <= idle else TtlChange.SHORTER


def facts_of_ttl(state: StateView, idle: int | None, *, writes: bool) -> Mapping[str, Any] | None:
    """Return the facts of the state with this TTL; None where they have it, or where the batch writes nothing else.

    That there is none is written in any case. Rows date no key from then on, and whether another key of the partition
    had rows meanwhile may not tell what a TTL that comes later does.
    """
    if _ttl_of(state) == idle or not (writes or idle is None):
        return None
    return {**state.facts, TTL: idle}


def _ttl_of(state: StateView) -> Any:
    # Older versions have not written it. Where there are entries there was one.
    return state.facts.get(TTL, END_OF_TIME if state.manifest.chain(IDLE) else None)


class KeyLedger:
    """The keys of a batch, in the order of their hashes.

    `fired` is the end of the last round before the batch, and `seen` the batch time of the last row, NONE for neither.
    `over` are the keys whose TTL is over, and `looked_at` those of which an index entry is due. `dated` are the keys
    of which nobody knows when the last row came: with a TTL it counts as of now.
    """

    def __init__(self, layout: TupleLayout, state: StateView, facts: StepFacts, keys: pa.Table) -> None:
        self.layout, self.facts, self.keys = layout, facts, keys
        n = keys.num_rows
        self.had = np.zeros(n, dtype=np.bool_)
        self.fired = np.full(n, NONE, dtype=np.int64)
        self.seen = np.full(n, NONE, dtype=np.int64)
        self.touched = np.zeros(n, dtype=np.bool_)
        self.looked_at = np.zeros(n, dtype=np.bool_)
        self.dated = np.zeros(n, dtype=np.bool_)
        if self._kept or changed_ttl(state, layout.idle) is TtlChange.GONE:
            schema = pa.schema([(FIRED, _UTC), (SEEN, _UTC)])
            self.had, table = state.lookup(KEYS, integers(keys, HASH), keys, schema=schema)
            self.fired, self.seen = (micros(table, name, null=NONE).copy() for name in schema.names)
        self.floors: dict[str, int] = {}

    @property
    def _kept(self) -> bool:
        return self.layout.counts_in_event_time or self.layout.idle is not None

    def touch(self, ids: Ints) -> None:
        """Mark the keys that rows came for, or of which rows no longer wait."""
        self.touched[ids] = True

    def look_at(self, ids: Ints) -> None:
        """Mark the keys of which an index entry is due."""
        self.looked_at[ids] = True
        if len(ids):
            self.floors[IDLE] = behind(self.facts.time)

    def date(self, ids: Ints) -> None:
        """Mark keys to which a new TTL applies from now on, or that have none any more."""
        self.dated[ids] = True
        self.seen[ids] = NONE if self.layout.idle is None else self.facts.time

    @property
    def over(self) -> Bools:
        """Return the keys whose last row came longer ago than the TTL, strictly."""
        if self.layout.idle is None:
            return np.zeros(len(self.had), dtype=np.bool_)
        return self.looked_at & ~self.touched & self.had & (self.seen < self.facts.time - self.layout.idle)

    def written(self, ends: Ints | None) -> dict[str, pa.Table]:
        """Return the rows to add; `ends` are those of the last rounds of the batch."""
        if not self._kept and not self.dated.any():
            return {}
        over, idle = self.over, self.layout.idle
        fired = self.fired if ends is None else np.maximum(self.fired, ends)
        # Null without a TTL, so that one that comes later finds the keys that have no entry.
        seen = np.where(self.touched, NONE if idle is None else self.facts.time, self.seen)
        write = over | self.dated | (fired > self.fired) | (self.touched & (idle is not None))
        at = np.flatnonzero(write)
        own = {
            GROUP: np.zeros(len(at), dtype=np.int64),
            FIRED: pa.array(fired[at], mask=fired[at] == NONE),
            SEEN: pa.array(seen[at], mask=seen[at] == NONE),
            DELETED: over[at],
        }
        made = {KEYS: self.layout.stored(KEYS, self.keys.take(pa.array(at)), **own)}
        if idle is not None:
            had_entry = self.had & (self.seen != NONE)
            asked = (self.touched & ~had_entry) | (self.looked_at & (self.touched | self.had)) | self.dated
            again = np.flatnonzero(~over & asked)
            made[IDLE] = self.layout.entries(seen[again] + idle + 1, self.keys.take(pa.array(again)))
        return made
