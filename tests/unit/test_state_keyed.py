"""Keyed state against a dict: whatever was put, deleted, merged and restarted, a lookup finds the newest (DESIGN 6)."""

from __future__ import annotations

import tracemalloc
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from state_samples import KEYS, empty_manifest, fresh_name, key_table, keyed_table, write

from penstock.errors import StateError
from penstock.state import (
    GROUP,
    HASH,
    LATEST,
    Change,
    Manifest,
    Plan,
    SegmentWriter,
    StateReader,
    compact,
    compaction,
    latest,
    plan_fold,
    sections,
    write_segment,
)
from penstock.state import segment as segment_module
from penstock.state.keys import canonical

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
    found, rows = reader.lookup(PART, hashes, key_table(ordered))
    states = rows.to_pylist() if rows.num_columns else [None] * len(ordered)
    assert rows.num_rows == (len(ordered) if rows.num_columns else 0)
    return {model_key(key): state if there else None for key, there, state in zip(ordered, found, states, strict=True)}


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
        written = write(self.folder, self.manifest, Change(append={PART: table}), merge={PART: LATEST})
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
        plan = Plan(part=PART, inputs=inputs, budget_bytes=data.draw(st.integers(1, 6_000)), oldest=oldest)
        self.manifest = carry_out(self.folder, self.manifest, plan)

    @rule(budget=st.integers(1, 20_000))
    def fold(self, budget):
        """Fold the chain, some of it at a time."""
        plan = plan_fold(self.manifest, PART, budget)
        if plan is not None:
            self.manifest = carry_out(self.folder, self.manifest, plan)

    @rule()
    def restart(self):
        """Go on as a new process would."""
        sections.forget()

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
        found = ask(StateReader(self.folder, self.manifest), everything)
        assert found == {model_key(key): self.model.get(model_key(key)) for key in everything}

    def teardown(self):
        """Read every manifest that was ever named: nothing that was written later has touched its files."""
        self.patched.stop()
        for ref, model in self.kept:
            reader = StateReader(self.folder, Manifest.read(self.folder / ref.path, ref))
            found = ask(reader, [("a", 0.0), ("a", None), (None, float("nan")), ("c", float("inf"))])
            assert found == {name: model.get(name) for name in found}


def carry_out(folder, manifest, plan):
    """Carry out a plan in a segment of its own."""
    merged = compact(StateReader(folder, manifest), plan, LATEST)
    with SegmentWriter(folder, fresh_name(99), step="step", partition=3, batch=99) as writer:
        part = writer.add(f"{PART}~0", merged.rows)
        ref = writer.publish()
    numbers = {run.number for run in plan.inputs}
    return manifest.merged(PART, numbers, merged.bound, part, 99).append(ref)


@pytest.mark.fault("F30", "F43")
def test_keyed_state_is_a_dict(tmp_path_factory):
    """Whatever the order of batches, merges, folds, restarts and restores; keys collide, are null and NaN."""
    KeyedState.make_folder = lambda _: tmp_path_factory.mktemp("state")
    how = settings(max_examples=40, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow])
    run_state_machine_as_test(KeyedState, settings=how)


def numbers_table(hashes, n, group=0):
    """Return rows whose key is their hash, with a number each."""
    columns = {GROUP: np.full(len(hashes), group), HASH: hashes, "k": hashes, "n": n}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def test_keys_of_one_hash_are_told_apart_in_one_run(tmp_path):
    """A hash of 64 bits collides once in a while; a wrong row would be a wrong result for ever."""
    keys = [("a", float(n)) for n in range(50)]
    rows = [(7, key, {"total": n, "tags": None, "place": None}) for n, key in enumerate(keys)]
    manifest = write(tmp_path, empty_manifest(), Change(append={PART: keyed_table(rows)})).manifest
    reader = StateReader(tmp_path, manifest)
    wanted = [*keys[::-1], ("a", 99.0)]
    found, state = reader.lookup(PART, np.full(51, 7, dtype=np.int64), key_table(wanted))
    assert found.tolist() == [True] * 50 + [False]
    assert state.column("total").to_pylist() == [*range(49, -1, -1), None]


def test_a_key_is_looked_for_in_its_group_only(tmp_path):
    """Running aggregates of several windows may stand in one part."""
    table = pa.concat_tables([numbers_table([1, 5], [10, 50], group=0), numbers_table([1, 5], [11, 51], group=60)])
    manifest = write(tmp_path, empty_manifest(["k"]), Change(append={PART: table})).manifest
    reader, hashes = StateReader(tmp_path, manifest), np.array([1, 5, 2**63 - 1])
    for group, expected in ((0, [10, 50, None]), (60, [11, 51, None]), (30, [None] * 3)):
        _, rows = reader.lookup(PART, hashes, pa.table({"k": hashes}), group=group)
        assert rows.column("n").to_pylist() == expected
    raised = StateReader(tmp_path, manifest.with_floor(60))
    assert raised.lookup(PART, hashes, pa.table({"k": hashes}))[0].tolist() == [False] * 3
    assert raised.lookup(PART, hashes, pa.table({"k": hashes}), group=60)[0].tolist() == [True, True, False]


def test_without_key_columns_the_hash_is_the_key(tmp_path):
    """A global step has one key, `()`."""
    table = numbers_table([0], [8]).drop_columns(["k"])
    manifest = write(tmp_path, empty_manifest([]), Change(append={PART: table})).manifest
    found, rows = StateReader(tmp_path, manifest).lookup(PART, np.array([0]), pa.table({}))
    assert (found.tolist(), rows.to_pylist()) == ([True], [{"n": 8}])


def test_a_lookup_of_nothing_and_in_nothing_answers(tmp_path):
    """An empty batch, and a part that has no rows yet."""
    reader = StateReader(tmp_path, empty_manifest(["k"]))
    keys = pa.table({"k": pa.array([1, 2])})
    schema = pa.schema([("n", pa.int64())])
    found, rows = reader.lookup(PART, np.array([1, 2]), keys, schema=schema)
    assert (found.tolist(), rows.to_pylist()) == ([False, False], [{"n": None}] * 2)
    found, rows = reader.lookup(PART, np.array([], dtype=np.int64), keys.slice(0, 0), schema=schema)
    assert (len(found), rows.num_rows, rows.schema) == (0, 0, schema)
    assert reader.schema(PART) is None


def test_hashes_must_be_sorted_and_as_many_as_keys(tmp_path):
    """A mistake of the caller is said, not answered with missing rows."""
    reader = StateReader(tmp_path, empty_manifest(["k"]))
    with pytest.raises(ValueError, match="not sorted"):
        reader.lookup(PART, np.array([2, 1]), pa.table({"k": [2, 1]}))
    with pytest.raises(ValueError, match="2 hashes for 1 keys"):
        reader.lookup(PART, np.array([1, 2]), pa.table({"k": [2]}))


def test_a_schema_that_grew_is_read_from_old_and_new_rows(tmp_path):
    """Added nullable columns are null in old rows, widened types are widened, order does not matter."""
    old = pa.table({GROUP: pa.array([0, 0]), HASH: [1, 2], "k": [1, 2], "n": pa.array([5, 6], pa.int32())})
    new = pa.table({GROUP: pa.array([0]), HASH: [2], "note": ["x"], "n": pa.array([2**40]), "k": pa.array([2])})
    manifest = write(tmp_path, empty_manifest(["k"]), Change(append={PART: old})).manifest
    manifest = write(tmp_path, manifest, Change(append={PART: new})).manifest
    keys, hashes = pa.table({"k": pa.array([1, 2])}), np.array([1, 2])
    expected = [{"note": None, "n": 5}, {"note": "x", "n": 2**40}]
    assert StateReader(tmp_path, manifest).lookup(PART, hashes, keys)[1].to_pylist() == expected
    folded = carry_out(tmp_path, manifest, plan_fold(manifest, PART, 10_000))
    assert len(folded.chain(PART)) == 1
    assert StateReader(tmp_path, folded).lookup(PART, hashes, keys)[1].to_pylist() == expected
    scanned = StateReader(tmp_path, manifest).scan(PART, schema=pa.schema([("n", pa.float64())]))
    assert [table.column("n").to_pylist() for table in scanned] == [[5.0, 6.0], [2.0**40]]


def test_a_schema_that_does_not_fit_is_refused_with_the_column(tmp_path):
    """What cannot be widened is not guessed."""
    table = pa.table({GROUP: pa.array([0]), HASH: [1], "k": [1], "note": ["x"]})
    manifest = write(tmp_path, empty_manifest(["k"]), Change(append={PART: table})).manifest
    with pytest.raises(StateError, match="state column 'note' is stored as string and cannot be read as int64"):
        StateReader(tmp_path, manifest).scan(PART, schema=pa.schema([("note", pa.int64())]))


def test_a_lookup_takes_memory_for_what_it_asks_and_not_for_what_is_held(tmp_path):
    """The run is mapped, never read whole: 200 keys of 400,000 in less than a hundredth of their bytes."""
    hashes = np.arange(400_000, dtype=np.int64) * 1_000
    manifest = write(tmp_path, empty_manifest(["k"]), Change(append={PART: numbers_table(hashes, hashes)})).manifest
    wanted = hashes[::2_000].copy()
    keys = pa.table({"k": wanted})
    StateReader(tmp_path, manifest).lookup(PART, wanted, keys)
    sections.forget()
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), 0
    tracemalloc.start()
    reader = StateReader(tmp_path, manifest)
    found, rows = reader.lookup(PART, wanted, keys)
    most = tracemalloc.get_traced_memory()[1] + pool.bytes_allocated() - before
    tracemalloc.stop()
    assert found.all()
    assert rows.column("n").to_pylist() == wanted.tolist()
    assert manifest.size > 12_000_000
    assert most < manifest.size // 100


@settings(max_examples=60)
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
    found = {(row[HASH], int(row["score"])): None if row["_deleted"] else row["total"] for row in merged.to_pylist()}
    assert len(found) == merged.num_rows
    assert found == {place: n for place, n in model.items() if n is not None or not drop_deleted}
    assert merged.column(HASH).to_pylist() == sorted(merged.column(HASH).to_pylist())


def test_tombstones_stay_as_long_as_older_rows_may_lie_below_them(tmp_path):
    """They go when the oldest run is merged with them."""
    state = {"total": 1, "tags": None, "place": None}
    manifest = empty_manifest()
    for rows in ([(3, ("a", 1.0), state)], [(3, ("a", 1.0), None)], [(3, ("b", 1.0), state)]):
        manifest = write(tmp_path, manifest, Change(append={PART: keyed_table(rows)})).manifest
    chain = manifest.chain(PART)
    newer = carry_out(tmp_path, manifest, Plan(part=PART, inputs=chain[1:], budget_bytes=10**6, oldest=False))
    assert [run.rows for run in newer.chain(PART)] == [1, 2]
    assert ask(StateReader(tmp_path, newer), [("a", 1.0)]) == {("a", 1.0): None}
    whole = carry_out(tmp_path, newer, plan_fold(newer, PART, 10**6))
    assert [run.rows for run in whole.chain(PART)] == [1]
    assert ask(StateReader(tmp_path, whole), [("a", 1.0), ("b", 1.0)]) == {("a", 1.0): None, ("b", 1.0): state}


def test_a_state_that_is_all_deleted_takes_no_space(tmp_path):
    """Once it is folded: no run, no file."""
    state = {"total": 1, "tags": None, "place": None}
    manifest = empty_manifest()
    for rows in ([(1, ("a", 1.0), state)], [(1, ("a", 1.0), None)]):
        manifest = write(tmp_path, manifest, Change(append={PART: keyed_table(rows)})).manifest
    folded = carry_out(tmp_path, manifest, plan_fold(manifest, PART, 10**6))
    assert (folded.chains, folded.files(), folded.rows) == ({}, [], 0)


def test_a_segment_written_alone_can_be_looked_up(tmp_path):
    """`write_segment` and `Manifest.append` are all that a bulk load needs."""
    hashes = np.array([-4, 9])
    ref = write_segment(tmp_path, fresh_name(0), {PART: numbers_table(hashes, [1, 2])}, step="s", partition=0, batch=0)
    reader = StateReader(tmp_path, empty_manifest(["k"]).append(ref).at(0))
    assert reader.lookup(PART, hashes, pa.table({"k": hashes}))[1].column("n").to_pylist() == [1, 2]
    assert compaction.plan_compaction(reader.manifest, PART, 10**6) is None
