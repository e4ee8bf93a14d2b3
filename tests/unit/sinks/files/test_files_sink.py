"""Folders of files as sinks of jobs: each row once, for readers of the manifest and for those who list the folder."""

from __future__ import annotations

import json
import pickle
import re
import secrets
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from harness_jobs import ORDERS, order
from written_files import TaskJsonLines, TaskParquet

from penstock import Job, agg, seconds
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import ConfigError, SinkBehind, SinkSchemaMismatch, SinkValueRefused
from penstock.quality import OnFail
from penstock.quality.held.decision_records import HeldRecords
from penstock.quality.held.overtaken import InForce
from penstock.quality.held.release import find_held, release
from penstock.runtime.driver.stages import BATCH
from penstock.runtime.inspect.explain import guarantees
from penstock.sinks import JsonLines, Parquet
from penstock.sinks.base import Sink
from penstock.sinks.files.folders import output_folder
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling

HOOKS = [
    *((stage.value[0], when) for stage in BATCH for when in ("before", "after")),
    ("PublishSinks", "published parquet"),
]

BETWEEN = "expect_column_values_to_be_between"
REAL = {"name": "real", "expectations": [{"type": BETWEEN, "kwargs": {"column": "x", "max_value": 10**9}}]}
SMALL = {"name": "small", "expectations": [{"type": BETWEEN, "kwargs": {"column": "v", "max_value": 10}}]}


def make_job(folder: Path, **more: Sink) -> Job:
    """Return a job that writes the same rows as Parquet by user, and as JSON lines."""
    job = Job("files", partitions=1)
    rows = job.source("orders", MemorySource(ORDERS)).select("user", "v")
    sinks = {"parquet": Parquet(folder / "parquet", partition_by=["user"]), "lines": JsonLines(folder / "lines")}
    for name, sink in (sinks | more).items():
        rows.write(name, sink)
    return job


def feed(h: Harness, *values: int) -> None:
    """Run a batch of rows of three users."""
    h.batch({"orders": [order("abc"[v % 3], 1, v) for v in values]})


def of_manifest(sink: Parquet) -> list[int]:
    """Return the rows of the files that the manifest names, as pandas reads them."""
    return sorted(pd.read_parquet([file.path for file in sink.files()])["v"])


def of_lines(folder: Path) -> list[int]:
    """Return the rows of all files in the folder."""
    return [json.loads(line)["v"] for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


@pytest.mark.fault("F01", "F54", "F55")
def test_a_crash_at_any_hook_leaves_each_row_once(tmp_path: Path, spark: Any) -> None:
    """For pandas by the manifest, and for pandas, Spark and whoever else lists the folder; lines in order of arrival."""
    rows = iter(range(10**6))
    out = tmp_path / "out"
    with Harness(make_job(out), tmp_path / "root") as h:
        for hook in HOOKS:
            h.crash_at(*hook)
            with pytest.raises(Crashed):
                feed(h, *(next(rows) for _ in range(4)))
            h.restart()
    every = list(range(4 * len(HOOKS)))
    assert of_manifest(Parquet(out / "parquet")) == every
    assert sorted(pd.read_parquet(out / "parquet")["v"]) == every
    by_spark = spark.read.parquet(str(out / "parquet")).collect()
    assert sorted((row.v, row.user) for row in by_spark) == [(v, "abc"[v % 3]) for v in every]
    assert sorted(row.v for row in spark.read.json(str(out / "lines")).collect()) == every
    assert of_lines(out / "lines") == every
    assert {file.rows for file in JsonLines(out / "lines").files()} == {4}


def test_rows_of_others_are_in_no_manifest(tmp_path: Path) -> None:
    """Files that somebody puts into the folder, and files of a dead writer: a listing has the first, and no second."""
    out = tmp_path / "parquet"
    with Harness(make_job(tmp_path), tmp_path / "root") as h:
        feed(h, 0, 1)
        (out / "user=a").mkdir(exist_ok=True)
        pd.DataFrame({"v": [7]}).to_parquet(out / "user=a" / "foreign.parquet")
        (out / ".tmp-0123").write_bytes(b"half a file")
        feed(h, 2)
    assert of_manifest(Parquet(out)) == [0, 1, 2]
    assert sorted(pd.read_parquet(out)["v"]) == [0, 1, 2, 7]


def test_a_restore_publishes_later_rows_again(tmp_path: Path) -> None:
    """SEMANTICS 10.1: under new batch ids; the manifest says which files are of batches after the restored one."""
    with Harness(make_job(tmp_path), tmp_path / "root") as h:
        feed(h, 0)
        kept = h.commit().batch
        feed(h, 1)
        gone = h.commit().batch
        h.restore(batch=kept)
        h.run()
    sink = Parquet(tmp_path / "parquet")
    assert of_manifest(sink) == [0, 1, 1]
    files = [file.path for file in sink.files() if not kept < file.batch <= gone]
    assert sorted(pd.read_parquet(files)["v"]) == [0, 1]


def test_two_checkpoints_share_a_folder(tmp_path: Path) -> None:
    """A checkpoint that begins anew has an app of its own, whose batches have the same numbers."""
    for name in ("one", "two"):
        with Harness(make_job(tmp_path), tmp_path / name) as h:
            feed(h, 0, 1)
    sink = Parquet(tmp_path / "parquet")
    assert of_manifest(sink) == sorted(pd.read_parquet(tmp_path / "parquet")["v"]) == [0, 0, 1, 1]
    assert Counter(file.app.split("/")[1] for file in sink.files()) == {"parquet": 4}
    assert len({file.app for file in sink.files()}) == 2


@pytest.mark.fault("F31")
def test_a_folder_that_was_emptied_stops_the_job(tmp_path: Path) -> None:
    """SEMANTICS 9.5: at the next start, with the batch that is missing."""
    with Harness(make_job(tmp_path), tmp_path / "root") as h:
        feed(h, 0)
    (tmp_path / "parquet").rename(tmp_path / "old")
    with pytest.raises(SinkBehind) as caught, Harness(make_job(tmp_path), tmp_path / "root"):
        pass
    assert list(caught.value.missing) == [0]


@pytest.mark.fault("F70")
def test_a_folder_of_another_layout_is_refused(tmp_path: Path) -> None:
    """Before the first batch: other partitions, another format, a column that names folders and is not there."""
    with Harness(make_job(tmp_path), tmp_path / "root") as h:
        feed(h, 0)
    for other, why in (
        (Parquet(tmp_path / "parquet"), "partitioned by"),
        (JsonLines(tmp_path / "parquet"), "Parquet, and not of JSON"),
        (Parquet(tmp_path / "new", partition_by=["x"]), "'x', and the stream has"),
    ):
        with pytest.raises(SinkSchemaMismatch, match=why), Harness(make_job(tmp_path, more=other), tmp_path / "other"):
            pass
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", ["parquet", "lines"])
def test_a_value_that_does_not_fit_is_refused_before_the_commit(tmp_path: Path, kind: str) -> None:
    """SEMANTICS 9.6: nothing of the batch is anywhere."""
    job = Job("values", partitions=1)
    source = MemorySource("name string, x double")
    sinks = {"parquet": Parquet(tmp_path / "out", partition_by=["name"]), "lines": JsonLines(tmp_path / "out")}
    job.source("rows", source).write("out", sinks[kind])
    bad = {"name": "n" * 300, "x": float("nan")}
    with Harness(job, tmp_path / "root") as h:
        h.batch({"rows": [{"name": "n", "x": 1.0}]})
        with pytest.raises(SinkValueRefused):
            h.batch({"rows": [bad]})
    assert [file.batch for file in sinks[kind].files()] == [0]


def test_what_explain_says(tmp_path: Path) -> None:
    """Exactly once, and where the rows go."""
    graph = make_job(tmp_path).graph()
    assert [promise.split(":")[0] for _, promise in guarantees(graph)] == ["exactly once"] * 2
    assert [node.sink.describe() for node in graph.sinks] == [
        f"folder {tmp_path / 'parquet'} of Parquet, partitioned by user",
        f"folder {tmp_path / 'lines'} of JSON lines",
    ]


def test_wrong_arguments_are_refused_where_they_are_written() -> None:
    """One name where names belong, and a URL that is none."""
    with pytest.raises(ConfigError, match=r"\['day'\]"):
        Parquet("out", partition_by="day")
    for kind in (Parquet, JsonLines):
        with pytest.raises(ConfigError, match="webhdfs"):
            kind("hdfs://nn:8020/out")
    sink = Parquet("out", partition_by=["day"])
    assert pickle.loads(pickle.dumps(sink)) == sink


class FileHarness(Harness):
    """A Harness in which tasks write the files of sinks; its calls return no rows."""

    def __init__(self, *arguments: Any) -> None:
        """Have tasks write files."""
        super().__init__(*arguments)
        self.settings = replace(self.settings, stage_rows=False)

    def _take_down(self, batch: int | None) -> None:
        """Read no rows: tests read the files."""


def make_task_job(folder: Path) -> Job:
    """Return a job whose tasks write all rows, those of a check, of its quarantine, and of windows as well."""
    job = Job("files", partitions=2)
    rows = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    rows.select("user", "v").write("parquet", TaskParquet(folder / "parquet", partition_by=["user"]))
    rows.select("user", "v").write("lines", TaskJsonLines(folder / "lines"))
    amounts = rows.with_columns(x="CASE WHEN v % 5 = 4 THEN double('NaN') ELSE double(v) END").select("v", "x")
    amounts.check("real", suite=REAL, on_fail=OnFail.QUARANTINE).write("good", TaskJsonLines(folder / "good"))
    job.quarantine("real").write("bad", TaskParquet(folder / "bad"))
    counted = rows.key_by("user").window("w", Tumbling(seconds(2)).drop_late()).aggregate(n=agg.count())
    counted.write("windows", TaskParquet(folder / "windows"))
    return job


def read_task_job(folder: Path) -> dict[str, list[Any]]:
    """Return the rows of all sinks, sorted, which a listing has just as the manifest."""
    shown = {}
    for name in ("parquet", "bad", "windows"):
        listed = pd.read_parquet(folder / name)
        files = [file.path for file in Parquet(folder / name).files()]
        assert sorted(files) == sorted(map(str, (folder / name).rglob("*.parquet")))
        assert sum(file.rows for file in Parquet(folder / name).files()) == len(listed)
        shown[name] = sorted(tuple(map(str, row)) for row in listed.itertuples(index=False))
    for name in ("lines", "good"):
        assert sorted(file.path for file in JsonLines(folder / name).files()) == sorted(
            map(str, (folder / name).glob("*.jsonl"))
        )
        shown[name] = sorted(of_lines(folder / name))
    return shown


@pytest.mark.slow
@pytest.mark.fault("F01", "F04", "F54")
@pytest.mark.parametrize("hooks", [HOOKS[3::3], pytest.param(HOOKS, marks=pytest.mark.soak)], ids=["some", "all"])
def test_files_that_tasks_write_have_each_row_once(tmp_path: Path, hooks: list[tuple[str, str]]) -> None:
    """SEMANTICS 9.4, 11.3: whatever crashed, and whichever task has a row; NaN is in quarantine alone."""
    every = list(range(6 * len(hooks)))
    with FileHarness(make_task_job(tmp_path), tmp_path / "root") as h:
        for n, hook in enumerate(hooks):
            h.crash_at(*hook)
            with pytest.raises(Crashed):
                h.batch({"orders": [order("abc"[v % 3], n + 1, v) for v in every[6 * n : 6 * n + 6]]})
            h.restart()
    shown = read_task_job(tmp_path)
    assert shown["parquet"] == sorted((str(v), "abc"[v % 3]) for v in every)
    assert shown["lines"] == every
    assert shown["good"] == [v for v in every if v % 5 != 4]
    assert [int(v) for v, *_ in shown["bad"]] == sorted((v for v in every if v % 5 == 4), key=str)
    # A window of two seconds is closed when a batch has a time behind it, and each batch has two rows of each user.
    ends = list(range(2, len(hooks) + 1, 2))
    assert sorted(int(n) for *_, n in shown["windows"]) == sorted([4 if end > 2 else 2 for end in ends] * 3)
    names = [Path(file.path).name for name in ("lines", "good") for file in JsonLines(tmp_path / name).files()]
    assert all(re.fullmatch(r"\d{12}-[0-9a-f]{16}-\d{4}\.jsonl", name) for name in names)


@pytest.mark.slow
def test_few_rows_are_one_file_and_many_are_files_of_tasks(tmp_path: Path) -> None:
    """Decision 119: a batch of some rows is not a file for each task, and a large one does not cross the driver."""
    job = Job("sizes", partitions=1)
    rows = [job.source(name, MemorySource("text string")) for name in "abc"]  # each is read by a task of its own
    rows[0].union(rows[1]).union(rows[2]).write("lines", JsonLines(tmp_path / "lines"))
    short, long = {"text": "short"}, {"text": "x" * 2**20}
    with FileHarness(job, tmp_path / "root") as h:
        h.batch({"a": [short], "b": [short, short], "c": [short]})
        h.batch({"a": [long, short], "b": [short], "c": [long]})
    assert [(file.batch, file.rows) for file in JsonLines(tmp_path / "lines").files()] == [
        (0, 4),
        (1, 1),
        (1, 2),
        (1, 1),
    ]


@pytest.mark.slow
@pytest.mark.fault("F52", "F71")
def test_held_files_of_tasks_are_released_once(tmp_path: Path) -> None:
    """SEMANTICS 11.5: they wait below the checkpoint, and become visible under an app of their own."""
    job = Job("held", partitions=1)
    rows = job.source("rows", MemorySource("v int"))
    rows.check("small", suite=SMALL, on_fail=OnFail.HOLD).write("out", TaskJsonLines(tmp_path / "out"))
    with FileHarness(job, tmp_path / "root") as h:
        h.batch({"rows": [{"v": 1}, {"v": 99}]})
        assert of_lines(tmp_path / "out") == []
        folder = tmp_path / "root" / "held"
        records = HeldRecords(LocalStore(tmp_path / "control"), "held")
        for _ in range(2):  # the second finds it done
            release(
                records,
                find_held(records, recover(Log(LocalStore(folder))), 0),
                job.graph(),
                uuid="uuid",
                staged=LocalFolder(folder / "staged"),
                spark=None,
                by="test",
                still_mine=lambda: None,
                older={},
                in_force=InForce.of(recover(Log(LocalStore(folder)))),
            )
    assert of_lines(tmp_path / "out") == [1, 99]


@pytest.mark.integration
def test_a_job_writes_to_hdfs(hdfs: Any, tmp_path: Path) -> None:
    """Files by partition, read back by their URLs' paths; a crash in between leaves each row once."""
    url = hdfs.url(secrets.token_hex(8))
    job = Job("hdfs", partitions=1)
    sink = Parquet(url, partition_by=["user"])
    job.source("orders", MemorySource(ORDERS)).select("user", "v").write("out", sink)
    with Harness(job, tmp_path) as h:
        feed(h, 0, 1, 2)
        h.crash_at("PublishSinks", "published out")
        with pytest.raises(Crashed):
            feed(h, 3, 4)
        h.restart()
    folder = output_folder(url)
    data = [folder.read(file.path.removeprefix(f"{url}/")) for file in sink.files()]
    assert sorted(pa.concat_tables(pd_table(each) for each in data)["v"].to_pylist()) == list(range(5))
    assert folder.names("") == ["_penstock", "user=a", "user=b", "user=c"]


def pd_table(data: bytes | None) -> pa.Table:
    """Return the rows of a Parquet file."""
    import io

    import pyarrow.parquet as pq

    return pq.read_table(io.BytesIO(data or b""))
