"""`deduplicate` keeps the first row of each key until event time forgets it (SEMANTICS 7.6)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import EveryBatches, Job, agg, micros, seconds
from penstock.checkpoint.log.batch_report import BatchReport, Totals
from penstock.errors import (
    DuplicateName,
    JobError,
    MissingSink,
    NoEventTime,
    StateError,
    StepsChanged,
    UnknownName,
)
from penstock.graph.job import Stream
from penstock.operators.deduplicate import DeduplicateStep
from penstock.operators.protocol import HASHED, MAIN, StepFacts
from penstock.operators.whole_rows import WholeRows
from penstock.runtime.inspect.explain import explain_graph
from penstock.sinks import MemorySink
from penstock.sources import MemorySource, OnEnd
from penstock.state import read
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(2, of="deduplication")

SCHEMA = "id string, n long, t timestamp"
WITHIN = 10


def source(job: Job, schema: str = SCHEMA, name: str = "fed") -> Stream:
    """Return a source whose watermark is the highest event time."""
    return job.source(name, MemorySource(schema), event_time="t", max_out_of_order=seconds(0))


def once(*, partitions: int = 2, within: int = WITHIN, by: Sequence[str] = ("id",), schema: str = SCHEMA) -> Job:
    """Return a job that keeps the first row of each key."""
    job = Job("once", partitions=partitions)
    source(job, schema).deduplicate("once", by=by, within=seconds(within)).write("out", MemorySink())
    return job


def row(key: str | None, n: int, t: int) -> dict[str, Any]:
    """Return a row; `t` is in seconds."""
    return {"id": key, "n": n, "t": t}


def numbers(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return which rows these are."""
    return [r["n"] for r in rows]


@dataclass
class Model:
    """Plain Python: SEMANTICS 7.6 word for word, by the watermark of the batch."""

    within: int = WITHIN
    watermark: int | None = None
    first: dict[Any, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("rows", "late", "emitted", "duplicates"), 0))

    def batch(self, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """Take a batch; return the rows that go on, in order of arrival."""
        self.forget()
        emitted = []
        for row in rows:
            fate = self._fate(row["id"], row["t"])
            self.counts["rows"] += 1
            self.counts[fate] += 1
            if fate == "emitted":
                self.first[row["id"]] = row["t"]
                emitted.append(row["n"])
        self.watermark = max([row["t"] for row in rows] + ([] if self.watermark is None else [self.watermark]))
        return emitted

    def forget(self) -> None:
        """Forget the keys that the watermark has passed."""
        if self.watermark is not None:
            self.first = {key: t for key, t in self.first.items() if t + self.within > self.watermark}

    def _fate(self, key: Any, t: int) -> str:
        if self.watermark is not None and t + self.within <= self.watermark:
            return "late"
        return "duplicates" if key in self.first else "emitted"


def held(h: Harness) -> dict[Any, int]:
    """Return the keys that the state has, with the event times of their first rows."""
    return {r["id"]: int(r["_event_time"].timestamp()) for r in h.state("once")}


def drawn_rows(drawn: random.Random, batch: int, numbered: int) -> list[dict[str, Any]]:
    """Return rows of few keys: most near the batch's time, some late or too late for their keys."""
    return [
        row(
            drawn.choice(["a", "b", "c", "d", None]),
            numbered + n,
            max(0, 4 * batch - drawn.choice([0, 0, 1, 5, 12, 25])),
        )
        for n in range(drawn.randrange(1, 7))
    ]


@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_what_goes_on_is_what_the_model_keeps(tmp_path: Path, partitions: int) -> None:
    """Through restarts, crashes and another number of partitions, in order of arrival; each row is in one count."""
    drawn, model, expected = random.Random(partitions), Model(), []
    with Harness(once(partitions=partitions), tmp_path) as h:
        for batch in range(14):
            rows = drawn_rows(drawn, batch, len(expected) + 100 * batch)
            expected += model.batch(rows)
            stage = drawn.choice([None, None, "FixOffsets", "Compute", "CommitBatch"])
            if stage is not None:
                h.crash_after(stage)
                with pytest.raises(Crashed):
                    h.batch({"fed": rows})
                h.restart()
            else:
                h.batch({"fed": rows})
            if batch == 9:
                partitions = 3
                h.restore(partitions=partitions, job=once(partitions=partitions))
            assert held(h) == model.first
        assert numbers(h.output()["out"]) == expected
        totals = h.commit().totals["deduplicate:once"]
        assert {name: totals[name] for name in model.counts} == model.counts
        assert min(model.counts.values()) > 0
        assert totals["merged"] == totals["emitted"] + totals["duplicates"]
        assert totals["rows"] == totals["late"] + totals["merged"]


def test_a_restore_brings_back_what_was_remembered(tmp_path: Path) -> None:
    """Rows that are read again are judged by the state and the watermark of the batch that is gone back to."""
    model, fed = Model(), [[row("a", 1, 0)], [row("b", 2, 6)], [row("a", 3, 7), row("c", 4, 11)], [row("a", 5, 12)]]
    with Harness(once(), tmp_path) as h:
        expected = []
        for batch, rows in enumerate(fed):
            expected += model.batch(rows)
            h.batch({"fed": rows})
            if batch == 1:
                then = deepcopy(model)
        assert numbers(h.output()["out"]) == expected == [1, 2, 4, 5]
        h.restore(batch=1)
        assert held(h) == then.first
        assert numbers(h.run()["out"]) == then.batch(fed[2] + fed[3]) == [4]


@pytest.mark.parametrize("start", [{"saved": "early"}, {"snapshot": "0"}, {"snapshot": "0", "partitions": 3}], ids=str)
def test_a_savepoint_and_a_data_checkpoint_have_what_was_remembered(tmp_path: Path, start: dict[str, Any]) -> None:
    """Both are of batch 1, and the rows behind it are judged by them, in other partitions as well."""

    def job(partitions: int = 2) -> Job:
        made = once(partitions=partitions)
        made.checkpoint(every=EveryBatches(2))
        return made

    model, fed = Model(), [[row("a", 1, 0)], [row("b", 2, 6)], [row("a", 3, 7), row("c", 4, 11)], [row("a", 5, 12)]]
    with Harness(job(), tmp_path) as h:
        for batch, rows in enumerate(fed):
            model.batch(rows)
            h.batch({"fed": rows})
            if batch == 1:
                then = deepcopy(model)
                h.save("early")
        h.restore(**start, job=job(start.get("partitions", 2)))
        assert held(h) == then.first == {"a": 0, "b": 6}
        assert numbers(h.run()["out"]) == then.batch(fed[2] + fed[3]) == [4]


def test_late_rows_are_counted_and_shown(tmp_path: Path) -> None:
    """A row whose key would be forgotten at once is late, whether its key is remembered or not (SEMANTICS 2.10)."""
    with Harness(once(), tmp_path) as h:
        h.batch({"fed": [row("a", 1, 100)]})
        out = h.batch({"fed": [row("a", 2, 90), row("b", 3, 90), row("b", 4, 91), row("a", 5, 91)]})["out"]
        assert numbers(out) == [4]
        counted = {"rows": 4, "late": 2, "merged": 2, "emitted": 1, "duplicates": 1}
        assert h.commit().accounting["deduplicate:once"] == counted
        assert BatchReport.of(h.commit()).late == {"once": 2}
        totals = Totals.of(h.commit())
        assert totals is not None
        assert totals.late == 2
        h.batch({"fed": [row("a", 6, 1), row("a", 7, 2)]})
        assert Totals.of(h.commit()).warnings == ("most rows were late in 1 batch",)


def test_a_row_of_a_forgotten_key_is_a_first_row_again(tmp_path: Path) -> None:
    """By the watermark alone, and not by the event time of the row; further rows do not prolong it."""
    with Harness(once(), tmp_path) as h:
        assert numbers(h.batch({"fed": [row("a", 1, 0), row("a", 2, 9), row("a", 3, 30)]})["out"]) == [1]
        assert held(h) == {"a": 0}
        h.restart()
        assert numbers(h.batch({"fed": [row("a", 4, 25), row("a", 5, 26)]})["out"]) == [4]
        assert held(h) == {"a": 25}
        assert read(tmp_path, "once", "once").select(["id"]).to_pylist() == [{"id": "a"}]
        h.batch({"fed": [row("b", 6, 60)]})
        assert held(h) == {"a": 25, "b": 60}
        h.batch({"fed": [row("b", 7, 60)]})
        assert held(h) == {"b": 60}


def test_equal_keys_are_as_in_other_steps(tmp_path: Path) -> None:
    """NaN is one, zero is one, null is one (SEMANTICS 3.4); the rows keep the values they came with."""
    job = once(by=["id", "word"], schema="id double, word string, n long, t timestamp")
    keys = [(float("nan"), "x"), (-0.0, "x"), (0.0, "x"), (float("nan"), "x"), (None, "x"), (None, "x"), (0.0, None)]
    rows = [{"id": key, "word": word, "n": n, "t": 0} for n, (key, word) in enumerate(keys)]
    with Harness(job, tmp_path) as h:
        out = h.batch({"fed": rows})["out"]
        assert numbers(out) == [0, 1, 4, 6]
        assert str(out[1]["id"]) == "-0.0"
        assert numbers(h.batch({"fed": rows})["out"]) == []
        h.restart()
        assert numbers(h.batch({"fed": [{"id": 0.0, "word": "y", "n": 7, "t": 0}, *rows]})["out"]) == [7]


def test_behind_a_window_rows_are_judged_by_the_watermark_before(tmp_path: Path) -> None:
    """A window's rows come when the watermark has passed them, and are not late (SEMANTICS 2.1)."""
    outputs = []
    for partitions in (1, 8):
        job = Job("chained", partitions=partitions)
        counts = source(job).key_by("id").window("w", Tumbling(seconds(10)).drop_late()).aggregate(n=agg.count())
        once_each = counts.deduplicate("once", by=["id"], within=seconds(5))
        once_each.write("out", MemorySink())
        again = once_each.key_by("id").window("v", Tumbling(seconds(20)).drop_late()).aggregate(n=agg.sum("n"))
        again.write("sums", MemorySink())
        with Harness(job, tmp_path / str(partitions)) as h:
            h.batch({"fed": [row("a", 0, 1), row("b", 0, 2), row("b", 0, 12), row("b", 0, 13)]})
            out = h.batch({"fed": [row("c", 0, 100)]})
            assert sorted((r["id"], r["n"]) for r in h.output()["out"]) == [("a", 1), ("b", 1)]
            assert h.state("once") == []
            totals = h.commit().totals["deduplicate:once"]
            assert (totals["late"], totals["emitted"], totals["duplicates"]) == (0, 2, 1)
            h.batch({"fed": [row("c", 0, 101)]})
            outputs.append((sorted(map(str, h.output()["sums"])), str(sorted(out))))
    assert outputs[0] == outputs[1]
    assert len(outputs[0][0]) == 2


def test_branches_that_meet_share_what_is_remembered(tmp_path: Path) -> None:
    """Of a row that comes along two ways, the copy of the first way goes on."""
    job = Job("met", partitions=2)
    fed = source(job)
    fed.filter("n > 0").union(fed.filter("n < 5")).deduplicate("once", by=["n"], within=seconds(5)).write(
        "out", MemorySink()
    )
    with Harness(job, tmp_path) as h:
        assert numbers(h.batch({"fed": [row("a", n, 0) for n in (7, 3, 0, 3)]})["out"]) == [7, 3, 0]
        assert h.commit().accounting["deduplicate:once"]["duplicates"] == 3


@pytest.mark.parametrize("within", [50, 3])
def test_within_may_change(tmp_path: Path, within: int) -> None:
    """Keys that are held are remembered as long as it says now, and their deadlines go by it; diff shows the change."""
    model = Model()
    with Harness(once(), tmp_path) as h:
        for rows in ([row("a", 1, 0)], [row("b", 2, 5)]):
            assert numbers(h.batch({"fed": rows})["out"]) == model.batch(rows)
        h.restart(once(within=within))
        model.within = within
        for n, t in enumerate((8, 20, 31, 60, 61, 200, 201)):
            rows = [row("c", 10 * n, t), row("a", 10 * n + 1, t), row("b", 10 * n + 2, t - 2)]
            assert numbers(h.batch({"fed": rows})["out"]) == model.batch(rows)
        assert held(h) == model.first


def test_the_longest_within_is_no_overflow(tmp_path: Path) -> None:
    """It reaches to the end of time, which forgets every key."""
    job, forever = Job("once", partitions=1), micros(2**63 - 1)
    fed = job.source("fed", MemorySource(SCHEMA, on_end=OnEnd.CLOSE), event_time="t", max_out_of_order=seconds(0))
    fed.deduplicate("once", by=["id"], within=forever).write("out", MemorySink())
    fed.key_by("id").window("w", Tumbling(seconds(1)).drop_late()).aggregate(n=agg.count()).write("ws", MemorySink())
    with Harness(job, tmp_path) as h:
        assert numbers(h.batch({"fed": [row("a", 1, 5), row("b", 2, 9_000_000_000)]})["out"]) == [1, 2]
        assert numbers(h.batch({"fed": [row("a", 3, 6), row("c", 4, 0), row("b", 5, 7)]})["out"]) == [4]
        assert len(held(h)) == 3
        h.end("fed")
        h.run()
        assert held(h) == {}


@pytest.mark.parametrize(
    "by", [["n"], ["id", "n"], ["n", "id"]], ids=["another column", "one more", "one more before it"]
)
def test_other_keys_are_refused(tmp_path: Path, by: list[str]) -> None:
    """What is remembered says nothing of other keys; the job of before goes on."""
    with Harness(once(), tmp_path) as h:
        h.batch({"fed": [row("a", 1, 0)]})
        with pytest.raises(StepsChanged, match="key column"):
            h.restart(once(by=by))
    with Harness(once(), tmp_path) as h:
        assert held(h) == {"a": 0}


def test_keys_in_another_order_are_refused(tmp_path: Path) -> None:
    """Their hashes are others, and rows would go to other partitions."""
    with Harness(once(by=["id", "n"]), tmp_path) as h:
        h.batch({"fed": [row("a", 1, 0)]})
        with pytest.raises(StepsChanged, match="another order"):
            h.restart(once(by=["n", "id"]))


def remember(_time: Any, _key: Any, _row: Any, state: Any) -> None:
    """Keep something else."""
    state.update(v=1)


def test_state_of_another_operator_is_refused(tmp_path: Path) -> None:
    """A step of that name was something else."""
    job = Job("once", partitions=2)
    remembered = (
        source(job).key_by("id").map_with_state("once", remember, state="v long", output="id string", unbounded=True)
    )
    remembered.write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        h.batch({"fed": [row("a", 1, 0)]})
        with pytest.raises(StepsChanged, match="where deduplicate keeps"):
            h.restart(once())


def _untimed(job: Job) -> Stream:
    return (
        source(job)
        .key_by("id")
        .map_with_state_arrow("step", lambda *_: None, state="v long", output="id string", unbounded=True)
    )


def _late(job: Job) -> Stream:
    windows = source(job).key_by("id").window("w", Tumbling(seconds(1)).late_to("late")).aggregate(n=agg.count())
    windows.write("windows", MemorySink())
    return job.late("late")


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        (lambda job: job.source("fed", MemorySource(SCHEMA)), JobError, "deduplicate 'once' needs event time"),
        (_untimed, NoEventTime, "map_with_state_arrow 'step'.*does not say"),
        (_late, JobError, "reads a side stream"),
    ],
    ids=["no event time", "an untimed step", "a side stream"],
)
def test_rows_without_a_watermark_of_their_own_are_refused(
    rows: Callable[[Job], Stream], error: type[JobError], words: str
) -> None:
    """At the line of the step."""
    job = Job("once")
    rows(job).deduplicate("once", by=["id"], within=seconds(1)).write("out", MemorySink())
    with pytest.raises(error, match=words) as met:
        job.graph()
    assert __file__ in str(met.value.where)


def test_rows_that_nobody_writes_are_refused() -> None:
    """As of other steps."""
    job = Job("once")
    fed = source(job)
    fed.write("all", MemorySink())
    fed.deduplicate("once", by=["id"], within=seconds(1))
    with pytest.raises(MissingSink, match="deduplicate 'once'"):
        job.graph()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"within": seconds(0)}, "within="),
        ({"within": 5}, "no unit"),
        ({"by": "id"}, r"by=\['id'\]"),
        ({"by": []}, "not a list of columns"),
        ({"by": ["lower(id)"]}, "with_columns"),
        ({"partitions": 0}, "partitions"),
    ],
)
def test_unfit_arguments_are_refused(arguments: dict[str, Any], words: str) -> None:
    """At once, at the user's line."""
    fed = source(Job("once"))
    with pytest.raises(JobError, match=words) as met:
        fed.deduplicate("once", **{"by": ["id"], "within": seconds(1), **arguments})
    assert __file__ in str(met.value.where)


def test_keys_are_said_once() -> None:
    """In by=, each column once, and not by key_by as well."""
    fed = source(Job("once"))
    with pytest.raises(DuplicateName, match="twice"):
        fed.deduplicate("once", by=["id", "id"], within=seconds(1))
    with pytest.raises(JobError, match=r"by=\['n'\]"):
        fed.key_by("n").deduplicate("once", by=["id"], within=seconds(1))


@pytest.mark.parametrize(
    ("by", "schema", "error"),
    [
        ("other", SCHEMA, UnknownName),
        ("_event_time", "_event_time string, n long, t timestamp", JobError),
    ],
)
def test_columns_that_cannot_be_keys_are_refused(tmp_path: Path, by: str, schema: str, error: type[JobError]) -> None:
    """Where the columns are known: when the job starts."""
    with pytest.raises(error, match=by), Harness(once(by=[by], schema=schema), tmp_path):
        pass


def test_explain_says_what_it_does() -> None:
    """The keys, and for how long they are remembered."""
    texts = {text for section in explain_graph(once().graph()) for entry in section.rows for text in entry}
    words = "deduplicate once: the first row, by id, 2 state partitions, within 10 s; duplicates and late rows dropped"
    assert any(text.startswith(words) for text in texts)


def test_state_made_anew_has_each_key_once() -> None:
    """A table with a key twice or without a time is refused; a key that the watermark has forgotten is left out."""
    keys = pa.schema([("id", pa.string())])
    rows = WholeRows(visible=pa.schema([*keys, ("t", pa.timestamp("us", tz="UTC"))]), keys=keys)
    step = DeduplicateStep(name="once", rows_as=rows, within=10)
    moment = StepFacts(batch=0, time=0, watermark=15)

    def table(*given: tuple[str, int | None]) -> dict[str, pa.Table]:
        columns = {"id": [key for key, _ in given], "_event_time": [t for _, t in given], HASHED: [1] * len(given)}
        return {MAIN: pa.table(columns, schema=pa.schema([*step.tables[MAIN], (HASHED, pa.int64())]))}

    made = step.rebuilt(table(("a", 5), ("b", 6)), moment).change.append
    assert made["state"]["id"].to_pylist() == made["deadlines"]["id"].to_pylist() == ["b"]
    assert made["deadlines"]["_group"].to_pylist() == [16]
    with pytest.raises(StateError, match="1 more rows than keys"):
        step.rebuilt(table(("a", 5), ("a", 6)), moment)
    with pytest.raises(StateError, match="1 rows without _event_time"):
        step.rebuilt(table(("a", 5), ("b", None)), moment)
