"""An operator that Penstock does not have, with two inputs, runs by this module alone (decision 90).

`newest_pairs` keeps the newest row of each side for each key. A row that comes while the other side has one puts out
both. A row that lacks its value is not taken: it goes to a side stream before the shuffle.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import Job, agg, seconds
from penstock.errors import BadExpression, JobError
from penstock.graph.job import Stream
from penstock.graph.keyed import StatefulSteps
from penstock.graph.nodes import LateNode, SideNode
from penstock.graph.steps import GraphView, StepNode, StepSpec, need_event_time, need_sink
from penstock.operators.protocol import (
    HASHED,
    MAIN,
    TIME,
    BoundSide,
    Due,
    Emit,
    Rebuilt,
    RowsOfBranch,
    Send,
    StateView,
    StepContext,
    StepFacts,
    Tally,
)
from penstock.operators.schema_evolution import Evolution
from penstock.operators.whole_rows import WholeRows, WholeRowsStep
from penstock.runtime.inspect.explain import explain_graph
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import read
from penstock.state.parts import Merge, Part, by_name
from penstock.state.writer import Change
from penstock.testing import Crashed, Harness
from penstock.time.arrival import ARRIVAL, Stand
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(1, of="a made-up operator")

LACKING = "lacking"
Streams: TypeAlias = StatefulSteps[Stream]
PARTS = ("left", "right")
KEPT = pa.schema([("value", pa.int64())])


# --- the spec: what the graph knows ----------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class NewestPairs(StepSpec):
    """Pair the newest rows of two streams by `value`, a column of both."""

    value: str
    lacking: str

    operator: ClassVar[str] = __name__
    kind: ClassVar[str] = "pairs"
    counts: ClassVar[tuple[str, ...]] = ("rows", "lacking")
    sums: ClassVar[Mapping[str, tuple[str, ...]]] = {"rows": ("lacking", "merged")}
    before_shuffle: ClassVar[frozenset[str]] = frozenset({LACKING})

    def side_streams(self, step: str) -> Mapping[str, tuple[type[SideNode], str]]:
        return {LACKING: (LateNode, self.lacking)}

    def check(self, node: StepNode, graph: GraphView) -> None:
        need_event_time(graph, node, f"pairs {node.name!r}")
        need_sink(graph, node, f"pairs {node.name!r}")

    def words(self, node: StepNode, keys: str) -> str:
        return f"pairs {node.name}: {self.value} of both, {keys}"


def newest_pairs(left: Streams, right: Streams, value: str, *, on: tuple[str, ...] | None = None) -> Stream:
    """Add the step `pairs`; what a class of methods would do."""
    return left._step("pairs", NewestPairs(value=value, lacking="lacking"), None, right, keys=on)


# --- the operator ----------------------------------------------------------------------------------


def bind_side(spec: NewestPairs, side: BoundSide) -> PairSide:
    return PairSide(rows=WholeRows.of(side), value=spec.value)


def bind(spec: NewestPairs, sides: Sequence[PairSide], context: StepContext) -> Pairs:
    return Pairs(sides=tuple(side.rows for side in sides), value=spec.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSide:
    """Map side: rows that lack the value are put aside, the others are sent whole."""

    rows: WholeRows
    value: str

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        return {LACKING: self.rows.keys}

    def differs(self, other: PairSide) -> str | None:
        return self.rows.differs(other.rows)

    def prepare(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        there = rows.table[self.value].is_valid().to_numpy()
        lacking = rows.only(~there)
        yield Tally(dict.fromkeys(("rows", "lacking"), lacking.table.num_rows))
        if LACKING in facts.read:
            keys = [lacking.table[lacking.keys[name]] for name in self.rows.keys.names]
            aside = pa.table(keys, schema=self.rows.keys).append_column(TIME, lacking.table[TIME])
            yield Emit(outlet=LACKING, rows=aside, arrivals=lacking.arrivals)
        yield from self.rows.prepare(rows.only(there), facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs(WholeRowsStep):
    """Behind the shuffle: a part for each side, in which a newer row of a key hides the older."""

    sides: tuple[WholeRows, ...]
    value: str

    @property
    def keys(self) -> pa.Schema:
        return self.sides[0].keys

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        return {"": pa.schema([*self.keys, ("l", pa.int64()), ("r", pa.int64())])}

    @property
    def explained(self) -> Mapping[str, str]:
        return {"How pairs are made": "of the newest rows"}

    @property
    def layout_name(self) -> str:
        return f"pairs of {self.keys}"

    @property
    def parts(self) -> Mapping[str, Part]:
        identity = tuple(self.keys.names)
        return by_name(Part(name=name, identity=identity, merge=Merge.LATEST, table=MAIN) for name in PARTS)

    def evolution(self, state: StateView) -> Evolution:
        return Evolution()

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        return Evolution()

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        return {MAIN: pa.schema([*self.keys, *KEPT, ("side", pa.int32())])}

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        sides = pa.repeat(pa.scalar(PARTS.index(part), pa.int32()), rows.num_rows)
        return rows.select([*self.keys.names, *KEPT.names]).append_column("side", sides)

    def adapted(self, table: str, layout: str) -> Any:
        return lambda rows: rows

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: StepFacts) -> Rebuilt:
        rows = tables[MAIN]
        parts = {part: self._part(rows.filter(pc.equal(rows["side"], side))) for side, part in enumerate(PARTS)}
        return Rebuilt(change=Change(append=parts), due=None, due_time=None)

    def run(
        self, state: StateView, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Generator[Emit | Change | Due | Tally, StateView | None, None]:
        arrived = [
            self._arrived(side, tables, n) for n, (side, tables) in enumerate(zip(self.sides, inputs, strict=True))
        ]
        rows = pa.concat_tables(arrived)
        rows = rows.take(pc.sort_indices(rows[ARRIVAL])).combine_chunks()
        keys = list(zip(*(rows[name].to_pylist() for name in self.keys.names), strict=True))
        newest = self._known(state, rows, keys)
        pairs: list[tuple[int, tuple[Any, ...]]] = []
        last: tuple[dict[Any, int], ...] = ({}, {})
        for place, (side, value) in enumerate(zip(rows["side"].to_pylist(), rows["value"].to_pylist(), strict=True)):
            newest[keys[place]][side] = value
            last[side][keys[place]] = place
            if None not in newest[keys[place]]:
                pairs.append((place, (*keys[place], *newest[keys[place]])))
        half = len(pairs) // 2
        for some in (pairs[:half], pairs[half:]):  # by pieces, as a step does that puts out much
            yield self._emitted(rows, some)
        yield Tally({"merged": rows.num_rows})
        yield Due(None)
        newest_of = [rows.take(pa.array(sorted(places.values()), pa.int64())) for places in last]
        parts = {part: self._part(newest_of[side]) for side, part in enumerate(PARTS)}
        after = yield Change(append=parts)
        assert after is not None
        assert all(after.schema(part) is not None for part, table in parts.items() if table.num_rows)

    def _emitted(self, rows: pa.Table, pairs: Sequence[tuple[int, tuple[Any, ...]]]) -> Emit:
        schema = self.outlets[""]
        places = np.array([place for place, _ in pairs], dtype=np.int64)
        made = pa.Table.from_pylist(
            [dict(zip(schema.names, values, strict=True)) for _, values in pairs], schema=schema
        )
        none = np.zeros(len(places), dtype=np.int64)
        return Emit(
            rows=made.append_column(TIME, rows[TIME].take(pa.array(places))),
            stand=lambda: Stand(rows=places, times=none, hashes=none),
            arrivals=rows[ARRIVAL].combine_chunks,
        )

    def _arrived(self, side: WholeRows, tables: Sequence[pa.Table], number: int) -> pa.Table:
        rows = side.received(tables)
        made = side.key_table(rows).append_column("value", rows[self.value].cast(pa.int64()))
        made = made.append_column("side", pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))
        made = made.append_column(HASHED, rows[HASHED]).append_column(TIME, rows[TIME])
        return made.append_column(ARRIVAL, side.arrivals(rows))

    def _known(self, state: StateView, rows: pa.Table, keys: Sequence[Any]) -> dict[Any, list[Any]]:
        hashes = rows[HASHED].to_numpy()
        first = {key: place for place, key in reversed(list(enumerate(keys)))}
        places = sorted(first.values(), key=lambda place: hashes[place])
        asked = rows.select(self.keys.names).take(pa.array(places, pa.int64()))
        known = [state.lookup(part, hashes[places], asked, schema=KEPT) for part in PARTS]
        values = zip(*(table["value"].to_pylist() for _, table in known), strict=True)
        return {keys[place]: list(both) for place, both in zip(places, values, strict=True)}

    def _part(self, rows: pa.Table) -> pa.Table:
        columns = {"_group": np.zeros(rows.num_rows, dtype=np.int64), "_hash": rows[HASHED]}
        return pa.table({**columns, **{name: rows[name] for name in (*self.keys.names, *KEPT.names)}})


# --- the model and the tests -----------------------------------------------------------------------

LEFT, RIGHT = "k string, v long, t timestamp", "id string, v long, t timestamp"
TIMED: Any = {"event_time": "t", "max_out_of_order": seconds(0)}


class Model:
    """Plain Python: the newest of each side by key."""

    def __init__(self) -> None:
        self.newest: dict[str | None, list[int | None]] = {}
        self.pairs: list[tuple[Any, ...]] = []
        self.lacking: list[str | None] = []

    def take(self, side: int, key: str | None, value: int | None) -> None:
        """Take a row."""
        if value is None:
            self.lacking.append(key)
            return
        known = self.newest.setdefault(key, [None, None])
        known[side] = value
        if None not in known:
            self.pairs.append((key, *known))


def pairs_job(partitions: int) -> Job:
    """Pair two sources; the keys have other names on either side."""
    job = Job("pairs", partitions=partitions)
    lefts = job.source("lefts", MemorySource(LEFT), **TIMED)
    rights = job.source("rights", MemorySource(RIGHT), **TIMED)
    pairs = newest_pairs(lefts.key_by("k"), rights.key_by("id"), "v")
    pairs.write("out", MemorySink())
    return job


def found_pairs(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return pairs as tuples, in an order of their own: that of several partitions is nobody's promise."""
    return sorted(((row["k"], row["l"], row["r"]) for row in rows), key=str)


@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_a_step_with_two_inputs_gives_what_the_model_gives(tmp_path: Path, partitions: int) -> None:
    """Through restarts, crashes and a restore in other partitions; each row is in one of the sums."""
    drawn, model = random.Random(partitions), Model()
    with Harness(pairs_job(partitions), tmp_path) as h:
        for batch in range(10):
            fed: dict[str, list[dict[str, Any]]] = {"lefts": [], "rights": []}
            for side, (source, key) in enumerate((("lefts", "k"), ("rights", "id"))):
                for _ in range(drawn.randrange(6)):
                    named, value = drawn.choice(["a", "b", "c", None]), drawn.choice([None, *range(9)])
                    fed[source].append({key: named, "v": value, "t": batch})
                    model.take(side, named, value)
            stage = drawn.choice([None, None, "FixOffsets", "Compute", "CommitBatch"])
            if stage is not None and any(fed.values()):
                h.crash_after(stage)
                with pytest.raises(Crashed):
                    h.batch(fed)
                h.restart()
            else:
                h.batch(fed)
            if drawn.random() < 0.2:
                h.restart()
            if batch == 6:
                other = {1: 8, 2: 1, 8: 2}[partitions]
                h.restore(partitions=other, job=pairs_job(other))
        assert found_pairs(h.output()["out"]) == sorted(model.pairs, key=str)
        assert sorted((row["k"] for row in h.late("lacking")), key=str) == sorted(model.lacking, key=str)
        newest = [(key, value) for key, known in model.newest.items() for value in known if value is not None]
        for rows in (h.state("pairs"), read(tmp_path, "pairs", "pairs").to_pylist()):
            assert sorted(((row["k"], row["value"]) for row in rows), key=str) == sorted(newest, key=str)
        totals = h.commit().totals["pairs:pairs"]
        assert totals["rows"] == totals["lacking"] + totals["merged"]
        assert totals["lacking"] == len(model.lacking)


def test_the_output_of_a_step_may_be_an_input_beside_rows_of_a_source(tmp_path: Path) -> None:
    """Two branches and a filter lead to one side, a window to the other, and a window stands behind."""
    outputs = []
    for partitions in (1, 2, 8):
        job = Job("chained", partitions=partitions)
        lefts = job.source("lefts", MemorySource(LEFT), **TIMED)
        odd, even = lefts.filter("v % 2 = 1"), lefts.filter("v % 2 = 0")
        sums = lefts.key_by("k").window("w", Tumbling(seconds(10)).drop_late()).aggregate(v=agg.sum("v"))
        sums.write("sums", MemorySink())
        pairs = newest_pairs(odd.union(even).key_by("k"), sums.key_by("k"), "v")
        pairs.write("out", MemorySink())
        counted = pairs.key_by("k").window("behind", Tumbling(seconds(10)).drop_late()).aggregate(n=agg.count())
        counted.write("counts", MemorySink())
        model, drawn = Model(), random.Random(7)
        with Harness(job, tmp_path / str(partitions)) as h:
            for batch in range(8):
                rows = [{"k": drawn.choice("abc"), "v": drawn.randrange(9), "t": 6 * batch} for _ in range(5)]
                for row in rows:
                    model.take(0, row["k"], row["v"])
                for row in h.batch({"lefts": rows})["sums"]:
                    model.take(1, row["k"], row["v"])
                if batch == 4:
                    h.restart()
            assert found_pairs(h.output()["out"]) == sorted(model.pairs, key=str)
            assert model.pairs
            outputs.append({sink: sorted(map(str, rows)) for sink, rows in h.output().items()})
    assert outputs[0] == outputs[1] == outputs[2]
    assert outputs[0]["counts"]


def test_a_stream_may_be_both_inputs(tmp_path: Path) -> None:
    """A row comes to the first input before it comes to the second."""
    job, model = Job("both", partitions=2), Model()
    lefts = job.source("lefts", MemorySource(LEFT), **TIMED)
    newest_pairs(lefts, lefts, "v", on=("k",)).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        for batch in range(3):
            rows = [{"k": "ab"[n % 2], "v": 10 * batch + n, "t": batch} for n in range(4)]
            for row in rows:
                model.take(0, row["k"], row["v"])
                model.take(1, row["k"], row["v"])
            h.batch({"lefts": rows})
        assert found_pairs(h.output()["out"]) == sorted(model.pairs, key=str)


def test_keys_of_other_types_are_refused(tmp_path: Path) -> None:
    """Equal keys would have other hashes, and never meet."""
    job = Job("unlike", partitions=1)
    lefts = job.source("lefts", MemorySource(LEFT), **TIMED)
    rights = job.source("rights", MemorySource("id long, v long, t timestamp"), **TIMED)
    newest_pairs(lefts.key_by("k"), rights.key_by("id"), "v").write("out", MemorySink())
    with pytest.raises(BadExpression, match="other types"), Harness(job, tmp_path):
        pass


@pytest.mark.parametrize("key", ["_hash", "_Deleted", "value"])
def test_keys_with_the_names_of_other_columns_of_the_state_are_refused(tmp_path: Path, key: str) -> None:
    """Also where the operator does not: of all states, or of the table that shows this one."""
    job = Job("taken", partitions=1)
    lefts = job.source("lefts", MemorySource(f"{key} string, v long, t timestamp"), **TIMED)
    newest_pairs(lefts, lefts, "v", on=(key,)).write("out", MemorySink())
    with pytest.raises(JobError, match=rf"'pairs' has the name '{key}'"), Harness(job, tmp_path):
        pass


def test_streams_that_cannot_meet_are_refused() -> None:
    """Of another job, or with another number of keys."""
    lefts, others = (Job(name).source(name, MemorySource(LEFT), **TIMED) for name in ("a", "b"))
    with pytest.raises(JobError, match="streams of one job"):
        newest_pairs(lefts.key_by("k"), others.key_by("k"), "v")
    with pytest.raises(JobError, match="by k, v and by k"):
        newest_pairs(lefts.key_by("k", "v"), lefts.key_by("k"), "v")
    with pytest.raises(JobError, match="by k and by nothing"):
        newest_pairs(lefts.key_by("k"), lefts, "v")


def test_explain_has_the_words_of_the_spec() -> None:
    """What the graph knows of an operator is what its spec says."""
    texts = {text for section in explain_graph(pairs_job(2).graph()) for row in section.rows for text in row}
    assert "pairs pairs: v of both, by k and id, 2 state partitions" in texts
    assert "source:lefts -> rows of pairs" in texts
    assert "source:rights -> rows of pairs" in texts
