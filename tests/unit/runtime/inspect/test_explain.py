"""A job is described from the same values that run it (DESIGN 3, 4)."""

from __future__ import annotations

import pytest

from penstock import Job, agg, hours, minutes, seconds
from penstock.quality import OnFail
from penstock.receivers import Receiver
from penstock.runtime.driver.stages import BATCH
from penstock.runtime.inspect.explain import explain_graph, guarantees
from penstock.sinks import Console, Delta, MemorySink
from penstock.sources import (
    DeltaTable,
    FileReplay,
    Files,
    Http,
    Json,
    Kafka,
    MemorySource,
    Rate,
    Receive,
    Socket,
)
from penstock.windows import Sliding

ROWS = "user string, t timestamp, v int"


def everything(tmp_path) -> Job:
    """Return a job with a step of each kind."""
    job = Job("everything", partitions=4)
    left = job.source("left", MemorySource(ROWS), event_time="t", max_out_of_order=minutes(30))
    right = job.source("right", MemorySource(ROWS), event_time="t", max_out_of_order=seconds(0))
    rows = left.union(right).filter("v > 0").with_columns(w="v * 2").select("user", "w").transform("plain", identity)
    windows = rows.key_by("user").window("hourly", Sliding(hours(1), every=minutes(10)).late_to("too_late"))
    sums = windows.aggregate(n=agg.count(), total=agg.sum("w"))
    sums.check("quality", suite={}, on_fail=OnFail.QUARANTINE).write("out", Delta(tmp_path / "out"))
    job.quarantine("quality").write("bad", MemorySink())
    job.late("too_late").write("late", Console())
    return job


def identity(frame):
    """Return the frame."""
    return frame


@pytest.fixture
def sections(tmp_path):
    return {s.title: s.rows for s in explain_graph(everything(tmp_path).graph())}


def test_every_step_is_named_with_its_line(sections):
    """In the order of the graph."""
    texts = [text for _, text in sections["Steps"]]
    assert texts[:7] == [
        "source left: MemorySource, event time t, at most 30 min out of order",
        "source right: MemorySource, event time t, at most 0 ms out of order",
        "union of left and right",
        "filter filter_1: v > 0",
        "with columns w = v * 2",
        "select user, w",
        "transform plain: identity",
    ]
    assert texts[7] == (
        "window hourly: 1 h every 10 min, by user, 4 state partitions, late rows to too_late; "
        "n = count(), total = sum(w)"
    )
    assert texts[8:11] == ["check quality: on failure quarantine", texts[9], "quarantine of quality"]
    assert texts[11:] == ["sink bad: memory", "late rows too_late", "sink late: console"]
    lines = [int(place.rpartition(":")[2]) for place, _ in sections["Steps"]]
    assert all(place.rpartition(":")[0].endswith("test_explain.py") for place, _ in sections["Steps"])
    assert lines == sorted(lines)


def test_the_stages_are_those_that_run(sections):
    """One list for the runner, the crash tests and this."""
    stages = [name for name, _ in sections["Stages of a batch"]]
    assert stages == ["TakeOver", *(stage.value[0] for stage in BATCH)]
    assert [text[:2] for _, text in sections["Stages of a batch"]] == ["c0", "c1", "c2", "c3", "c4", "c5", "c6"]


def test_the_plan_of_the_batch_is_the_one_that_is_built(sections):
    """Where rows are read, shuffled, and staged."""
    assert sections["One Spark job for each batch"] == (
        ("read", "source:left -> filter_1 -> with columns -> select -> rows counted"),
        ("fork", "source:left -> filter_1 -> with columns -> select -> plain -> slices of hourly"),
        ("read", "source:right -> filter_1 -> with columns -> select -> rows counted"),
        ("fork", "source:right -> filter_1 -> with columns -> select -> plain -> slices of hourly"),
        ("shuffle", "4 tasks, state of hourly"),
        ("hop", "window:hourly -> check quality, then files of out"),
        ("stage", "quarantine:quality as it is for bad"),
        ("stage", "late:too_late as it is for late"),
    )


def test_each_path_from_a_source_to_a_sink_has_a_guarantee(tmp_path):
    """At least once where the sink cannot tell what it has, and why; through quarantine and late streams too."""
    by_way = dict(guarantees(everything(tmp_path).graph()))
    assert set(by_way) == {f"{source} -> {sink}" for source in ("left", "right") for sink in ("out", "bad", "late")}
    promises = {path.partition(" -> ")[2]: words.partition(":")[0] for path, words in by_way.items()}
    assert promises == {"out": "exactly once", "bad": "exactly once", "late": "at least once"}
    assert by_way["left -> late"].startswith("at least once: Console cannot tell whether it has a batch already")
    assert by_way["left -> out"].startswith("exactly once: Delta shows each batch once")


class Closed(MemorySink):
    """A sink that must not be opened."""

    def open(self, staging, spark):
        """Refuse."""
        raise AssertionError("it was opened to be described")


def test_describing_opens_no_sink():
    """sinks/base.py: what a sink promises is said by its type."""
    job = Job("described")
    job.source("rows", MemorySource(ROWS)).write("out", Closed())
    assert [promise.partition(":")[0] for _, promise in guarantees(job.graph())] == ["exactly once"]
    assert explain_graph(job.graph())


def test_describing_writes_nothing(tmp_path, sections):
    """No table, no checkpoint."""
    assert list(tmp_path.iterdir()) == []


def test_a_window_without_key_is_one_partition():
    """`explain` says so (API)."""
    job = Job("global")
    rows = job.source("s", MemorySource(ROWS), event_time="t", max_out_of_order=seconds(0))
    rows.window("all", Sliding(hours(1), every=hours(1)).drop_late()).aggregate(n=agg.count()).write("o", MemorySink())
    texts = [text for s in explain_graph(job.graph()) for _, text in s.rows]
    assert "window all: 1 h, no key, 1 state partition, late rows dropped and counted; n = count()" in texts


class Silent(Receiver):
    """Receives nothing."""

    def on_start(self) -> None:
        """Return at once."""


BROKER = {"servers": "broker:9092", "format": Json("id long"), "options": {"sasl.password": "hunter2"}}
WHAT = [
    (Kafka(["orders", "returns"], **BROKER), "Kafka topics orders, returns"),
    (Kafka(["orders"], **BROKER), "Kafka topic orders"),
    (Kafka(pattern="orders.*", **BROKER), "Kafka topics that match orders.*"),
    (Kafka(partitions={"orders": [0, 2]}, **BROKER), "Kafka partitions orders-0, orders-2"),
    (FileReplay("data/flights.csv", order_by="t"), "FileReplay of data/flights.csv"),
    (Files("landing/", format=Json("id long"), pattern="*.json"), "Files landing/*.json"),
    (DeltaTable("tables/orders"), "DeltaTable tables/orders"),
    (DeltaTable("tables/orders", changes=True), "DeltaTable tables/orders, its change data feed"),
    (Rate(5_000), "Rate of 5,000 rows a second"),
    (Socket("sensors", 9_000), "Socket to sensors:9000"),
    (Http(port=8_080, token="h" * 32, schema="id long"), "Http on 127.0.0.1:8080"),
    (Receive(Silent(), schema="id long"), "Receive by Silent"),
    (Receive(Silent, schema="id long"), "Receive by Silent"),
]


@pytest.mark.parametrize(("source", "text"), WHAT, ids=[text for _, text in WHAT])
def test_a_source_says_what_it_reads(source, text):
    """F62: as a sink says where rows go, and never an option that may be secret."""
    job = Job("described")
    job.source("s", source).write("out", MemorySink())
    steps = {s.title: s.rows for s in explain_graph(job.graph())}["Steps"]
    assert steps[0][1] == f"source s: {text}"


def test_a_guarantee_says_of_which_pushed_rows_it_speaks(tmp_path):
    """F47: no source has what a receiver has not acknowledged."""
    job = Job("received")
    job.source("s", Receive(Silent(), schema="k long")).write("out", Delta(tmp_path / "out"))
    ((_, promise),) = guarantees(job.graph())
    assert promise.startswith("exactly once")
    assert promise.endswith("counted from what a receiver has acknowledged to its sender")
