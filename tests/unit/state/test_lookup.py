"""Lookups: which row a key has, in which group, in what schema, and what that costs in memory (DESIGN 6)."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from state_samples import (
    carry_out,
    empty_manifest,
    fresh_name,
    key_table,
    keyed_table,
    latest_part,
    write,
    write_segment,
)

from penstock.errors import StateError
from penstock.state import section_reader
from penstock.state.compaction_planner import CompactionPlan, plan_compaction
from penstock.state.reader import StateReader
from penstock.state.row_layout import DELETED, GROUP, HASH
from penstock.state.writer import Change

PART = "state"


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
    hits, state = reader.lookup(PART, np.full(51, 7, dtype=np.int64), key_table(wanted))
    assert hits.tolist() == [True] * 50 + [False]
    assert state.column("total").to_pylist() == [*range(49, -1, -1), None]


def test_a_key_is_looked_for_in_group_0_only(tmp_path):
    """Rows of other groups may stand in the same part, and the greatest hash is found as well."""
    last = 2**63 - 1
    table = pa.concat_tables([numbers_table([1, last], [10, 50], group=0), numbers_table([1, 5], [11, 51], group=60)])
    manifest = write(tmp_path, empty_manifest(["k"]), Change(append={PART: table})).manifest
    hashes = np.array([1, 5, last])
    _, rows = StateReader(tmp_path, manifest).lookup(PART, hashes, pa.table({"k": hashes}))
    assert rows.column("n").to_pylist() == [10, None, 50]
    raised = StateReader(tmp_path, manifest.with_floor(60, PART))
    assert raised.lookup(PART, hashes, pa.table({"k": hashes}))[0].tolist() == [False] * 3


def test_without_key_columns_the_hash_is_the_key(tmp_path):
    """A global step has one key, `()`."""
    table = numbers_table([0], [8]).drop_columns(["k"])
    manifest = write(tmp_path, empty_manifest([]), Change(append={PART: table})).manifest
    hits, rows = StateReader(tmp_path, manifest).lookup(PART, np.array([0]), pa.table({}))
    assert (hits.tolist(), rows.to_pylist()) == ([True], [{"n": 8}])


def test_a_lookup_of_nothing_and_in_nothing_answers(tmp_path):
    """An empty batch, and a part that has no rows yet."""
    reader = StateReader(tmp_path, empty_manifest(["k"]))
    keys = pa.table({"k": pa.array([1, 2])})
    schema = pa.schema([("n", pa.int64())])
    hits, rows = reader.lookup(PART, np.array([1, 2]), keys, schema=schema)
    assert (hits.tolist(), rows.to_pylist()) == ([False, False], [{"n": None}] * 2)
    hits, rows = reader.lookup(PART, np.array([], dtype=np.int64), keys.slice(0, 0), schema=schema)
    assert (len(hits), rows.num_rows, rows.schema) == (0, 0, schema)
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
    folded = carry_out(
        tmp_path, manifest, CompactionPlan(part=PART, inputs=manifest.chain(PART), budget_bytes=10_000, oldest=True)
    )
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
    section_reader.forget()
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), 0
    tracemalloc.start()
    reader = StateReader(tmp_path, manifest)
    hits, rows = reader.lookup(PART, wanted, keys)
    most = tracemalloc.get_traced_memory()[1] + pool.bytes_allocated() - before
    tracemalloc.stop()
    assert hits.all()
    assert rows.column("n").to_pylist() == wanted.tolist()
    assert manifest.size > 12_000_000
    assert most < manifest.size // 100


def test_a_segment_written_alone_can_be_looked_up(tmp_path):
    """`write_segment` and `Manifest.append` are all that a bulk load needs."""
    hashes = np.array([-4, 9])
    ref = write_segment(tmp_path, fresh_name(0), {PART: numbers_table(hashes, [1, 2])}, step="s", partition=0, batch=0)
    reader = StateReader(tmp_path, replace(empty_manifest(["k"]).append(ref), batch=0))
    assert reader.lookup(PART, hashes, pa.table({"k": hashes}))[1].column("n").to_pylist() == [1, 2]
    assert plan_compaction(reader.manifest, PART, 10**6) is None


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 5)), st.none() | st.integers(0, 99), max_size=8),
        max_size=6,
    ),
    st.booleans(),
)
def test_the_newest_rows_of_each_group_are_found(tmp_path, batches, merged):
    """A key may have a row in each of several groups; newer ones hide older, and tombstones hide them too."""
    folder = tmp_path / fresh_name(0)
    folder.mkdir()
    manifest, expected = empty_manifest(["k"]), {}
    part = latest_part(PART, ["k"])
    for batch in batches:
        groups, keys = ([place[n] for place in batch] for n in (0, 1))
        table = numbers_table(keys, [n or 0 for n in batch.values()], group=0)
        table = table.set_column(0, GROUP, pa.array(groups, pa.int64()))
        table = table.append_column(DELETED, pa.array([n is None for n in batch.values()], pa.bool_()))
        manifest = write(folder, manifest, Change(append={PART: table}), parts=part if merged else {}).manifest
        expected |= batch
    wanted = np.array([1, 3, 4])
    places, rows = StateReader(folder, manifest).rows_of(part[PART], wanted, pa.table({"k": wanted}))
    live = {
        (int(wanted[place]), row[GROUP]): row["n"] for place, row in zip(places.tolist(), rows.to_pylist(), strict=True)
    }
    assert len(live) == len(places)
    assert live == {(k, group): n for (group, k), n in expected.items() if k in wanted and n is not None}
