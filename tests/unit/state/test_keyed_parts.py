"""Keyed state against a dict: whatever was put, deleted, merged and restarted, a lookup finds the newest (DESIGN 6)."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from state_samples import KEYS, carry_out, empty_manifest, folded, key_table, keyed_table, latest_part, write

from penstock.state import section_reader
from penstock.state import segment_writer as segment_module
from penstock.state.compaction import latest
from penstock.state.compaction_planner import CompactionPlan
from penstock.state.keys import canonical
from penstock.state.manifest import Manifest
from penstock.state.reader import StateReader
from penstock.state.row_layout import HASH
from penstock.state.writer import Change

NAMES = st.none() | st.sampled_from(["a", "b", "c"])
SCORES = st.none() | st.sampled_from([0.0, 1.5, float("nan"), float("inf")])
USERS = st.tuples(NAMES, SCORES)
STATES = st.fixed_dictionaries(
    {
        "total": st.integers(-(2**63), 2**63 - 1),
        "tags": st.none() | st.lists(st.none() | st.text(max_size=2), max_size=2),
        "place": st.none() | st.fixed_dictionaries({"x": st.floats(allow_nan=False), "name": st.none() | st.just("n")}),
    }
)
PART = "state"


def hash_of(key):
    """Return a hash that several keys share: one for each name, whatever the score."""
    return {None: -5, "a": 3, "b": 3, "c": 2**63 - 1}[key[0]]


def model_key(key):
    """Return what a dict holds a key by: NaN equals NaN."""
    return canonical(key)


def ask(reader, keys):
    """Look keys up, and return the state of each by its dict key; None where it was not found."""
    ordered = sorted(keys, key=hash_of)
    hashes = np.array([hash_of(key) for key in ordered], dtype=np.int64)
    hits, rows = reader.lookup(PART, hashes, key_table(ordered))
    states = rows.to_pylist() if rows.num_columns else [None] * len(ordered)
    assert rows.num_rows == (len(ordered) if rows.num_columns else 0)
    return {model_key(key): state if there else None for key, there, state in zip(ordered, hits, states, strict=True)}


class KeyedState(RuleBasedStateMachine):
    """Do to files what a step does to its state, and to a dict what that means."""

    @initialize(block_bytes=st.sampled_from([1, 300, 4 * 2**20]))
    def begin(self, block_bytes):
        """Begin without state, with blocks of one row, of a few, or all rows in one."""
        self.folder = self.make_folder()
        self.manifest = empty_manifest()
        self.model = {}
        self.kept = []
        self.patched = mock.patch.object(segment_module, "BLOCK_BYTES", block_bytes)
        self.patched.start()

    @rule(rows=st.dictionaries(USERS.map(lambda key: (key[0], key[1])), st.none() | STATES, max_size=6))
    def batch(self, rows):
        """Change some keys and delete others, in one batch."""
        unique = {model_key(key): (key, state) for key, state in rows.items()}
        table = keyed_table((hash_of(key), key, state) for key, state in unique.values())
        written = write(self.folder, self.manifest, Change(append={PART: table}), parts=latest_part(PART))
        assert (written.ref is None) == (not unique)
        assert written.rewritten <= 4 * written.written + 2**20
        self.manifest = written.manifest
        self.model |= {name: state for name, (_, state) in unique.items()}
        if written.ref is not None:
            self.kept.append((written.ref, dict(self.model)))

    @rule(data=st.data())
    def merge_somewhere(self, data):
        """Carry on a merge under way, or begin one of any neighbours, with any budget."""
        chain = self.manifest.chain(PART)
        outputs = {run.into for run in chain}
        idle = [place for place, run in enumerate(chain) if run.into is None and run.number not in outputs]
        starts = [place for place in idle if place + 1 in idle]
        under_way = sorted({run.into for run in chain if run.into is not None})
        if under_way and (not starts or data.draw(st.booleans())):
            into = data.draw(st.sampled_from(under_way))
            inputs = tuple(run for run in chain if run.into == into)
        elif starts:
            start = end = data.draw(st.sampled_from(starts))
            while end in idle and (end < start + 2 or data.draw(st.booleans())):
                end += 1
            inputs = chain[start:end]
        else:
            return
        before = chain[: chain.index(inputs[0])]
        oldest = not before or (len(before) == 1 and before[0].number == inputs[0].into)
        plan = CompactionPlan(part=PART, inputs=inputs, budget_bytes=data.draw(st.integers(1, 6_000)), oldest=oldest)
        self.manifest = carry_out(self.folder, self.manifest, plan)

    @rule(budget=st.integers(1, 20_000))
    def fold(self, budget):
        """Put a base in the place of the chain, made some bytes at a time."""
        _, base = folded(self.folder, self.manifest, parts=latest_part(PART), at_once=budget)
        self.manifest = self.manifest.rebased(base)

    @rule()
    def restart(self):
        """Go on as a new process would."""
        section_reader.forget()

    @rule(data=st.data())
    def restore(self, data):
        """Go back to any manifest that a commit named."""
        if self.kept:
            place = data.draw(st.integers(0, len(self.kept) - 1))
            ref, model = self.kept[place]
            self.manifest, self.model = Manifest.read(self.folder / ref.path, ref), dict(model)

    @invariant()
    def every_key_is_found_as_it_was_left(self):
        """All keys there can be, in one lookup."""
        if not hasattr(self, "manifest"):
            return
        everything = [(name, score) for name in (None, "a", "b", "c") for score in (None, 0.0, 1.5, float("nan"), 9.0)]
        states = ask(StateReader(self.folder, self.manifest), everything)
        assert states == {model_key(key): self.model.get(model_key(key)) for key in everything}

    def teardown(self):
        """Read every manifest that was ever named: nothing that was written later has touched its files."""
        self.patched.stop()
        for ref, model in self.kept:
            reader = StateReader(self.folder, Manifest.read(self.folder / ref.path, ref))
            states = ask(reader, [("a", 0.0), ("a", None), (None, float("nan")), ("c", float("inf"))])
            assert states == {name: model.get(name) for name in states}


@pytest.mark.slow
@pytest.mark.fault("F30", "F43")
def test_keyed_state_is_a_dict(tmp_path_factory):
    """Whatever the order of batches, merges, folds, restarts and restores; keys collide, are null and NaN."""
    KeyedState.make_folder = lambda _: tmp_path_factory.mktemp("state")
    how = settings(max_examples=examples(16), stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow])
    run_state_machine_as_test(KeyedState, settings=how)


@settings(max_examples=examples(24))
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=6), min_size=1, max_size=4
    ),
    st.booleans(),
)
def test_latest_keeps_the_newest_row_of_each_key(runs, drop_deleted):
    """Also where several keys share a hash, and tombstones only where asked."""
    tables, model = [], {}
    for number, rows in enumerate(runs):
        unique = {(value, score): deleted for value, score, deleted in rows}
        states = [
            (value, ("a", float(score)), None if deleted else {"total": number, "tags": None, "place": None})
            for (value, score), deleted in unique.items()
        ]
        tables.append(keyed_table(states))
        model |= {place: None if deleted else number for place, deleted in unique.items()}
    merged = latest(tables, KEYS, drop_deleted=drop_deleted)
    totals = {(row[HASH], int(row["score"])): None if row["_deleted"] else row["total"] for row in merged.to_pylist()}
    assert len(totals) == merged.num_rows
    assert totals == {place: n for place, n in model.items() if n is not None or not drop_deleted}
    assert merged.column(HASH).to_pylist() == sorted(merged.column(HASH).to_pylist())


def test_tombstones_stay_as_long_as_older_rows_may_lie_below_them(tmp_path):
    """They go when the oldest run is merged with them."""
    state = {"total": 1, "tags": None, "place": None}
    manifest = empty_manifest()
    for rows in ([(3, ("a", 1.0), state)], [(3, ("a", 1.0), None)], [(3, ("b", 1.0), state)]):
        manifest = write(tmp_path, manifest, Change(append={PART: keyed_table(rows)})).manifest
    chain = manifest.chain(PART)
    newer = carry_out(tmp_path, manifest, CompactionPlan(part=PART, inputs=chain[1:], budget_bytes=10**6, oldest=False))
    assert [run.rows for run in newer.chain(PART)] == [1, 2]
    assert ask(StateReader(tmp_path, newer), [("a", 1.0)]) == {("a", 1.0): None}
    whole = carry_out(
        tmp_path, newer, CompactionPlan(part=PART, inputs=newer.chain(PART), budget_bytes=10**6, oldest=True)
    )
    assert [run.rows for run in whole.chain(PART)] == [1]
    assert ask(StateReader(tmp_path, whole), [("a", 1.0), ("b", 1.0)]) == {("a", 1.0): None, ("b", 1.0): state}


def test_a_state_that_is_all_deleted_takes_no_space(tmp_path):
    """Once it is folded: no run, no file."""
    state = {"total": 1, "tags": None, "place": None}
    manifest = empty_manifest()
    for rows in ([(1, ("a", 1.0), state)], [(1, ("a", 1.0), None)]):
        manifest = write(tmp_path, manifest, Change(append={PART: keyed_table(rows)})).manifest
    folded = carry_out(
        tmp_path, manifest, CompactionPlan(part=PART, inputs=manifest.chain(PART), budget_bytes=10**6, oldest=True)
    )
    assert (folded.chains, folded.files(), folded.rows) == ({}, [], 0)
