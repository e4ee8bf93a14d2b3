"""`join_static` gives a batch the version of a table that its Offsets name, however often it runs (SEMANTICS 1.2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock import EveryBatches, Job, OnNewVersion, agg, seconds
from penstock.errors import TableRefused, TableUnfit, TableVersionGone
from penstock.runtime.driver.settings import Identity
from penstock.runtime.inspect.explain import explain_graph
from penstock.runtime.restore.export import export_checkpoint, import_checkpoint
from penstock.runtime.restore.target import RestoreTarget
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(2, of="static tables")


def write(path: Path, *prices: tuple[str | None, int], **columns: Any) -> None:
    """Write the next version of a table of prices."""
    table = pa.table(
        {
            "id": pa.array([key for key, _ in prices], pa.string()),
            "price": pa.array([price for _, price in prices], pa.int64()),
            **columns,
        }
    )
    write_deltalake(str(path), table, mode="overwrite", schema_mode="overwrite")


def priced(
    table: Any,
    *,
    refresh: Any = None,
    how: Any = "left",
    schema: str = "id string, n long",
    name: str = "prices",
    columns: Sequence[str] = ("*",),
) -> Job:
    """Return a job that gives each row the prices of its key; `columns` are those of the source that it selects."""
    job = Job("priced", partitions=2)
    rows = job.source("rows", MemorySource(schema)).select(*columns)
    rows.join_static(table, on=["id"], how=how, refresh=refresh, name=name).write("out", MemorySink())
    return job


def rows(*keys: str | None) -> dict[str, list[dict[str, Any]]]:
    """Return what the source gives."""
    return {"rows": [{"id": key, "n": n} for n, key in enumerate(keys)]}


def pairs(made: dict[str, list[dict[str, Any]]]) -> list[tuple[int, int | None]]:
    """Return which rows had which prices, in order of arrival."""
    return [(row["n"], row["price"]) for row in made["out"]]


@pytest.mark.remedy("PEN-OPR-031")
def test_a_batch_that_runs_again_has_the_version_that_it_had(tmp_path: Path) -> None:
    """Through a crash between Offsets and Commit while the table changes, and a restart; also where it was vacuumed."""
    path = tmp_path / "prices"
    write(path, ("a", 1), ("b", 5))
    with Harness(priced(str(path), refresh=OnNewVersion()), tmp_path / "root") as h:
        assert pairs(h.batch(rows("a", "c", None))) == [(0, 1), (1, None), (2, None)]
        assert h.commit().accounting["join_static:prices"] == {"rows": 3, "made": 3}
        write(path, ("a", 2))
        h.crash_after("FixOffsets")
        with pytest.raises(Crashed):
            h.batch(rows("a", "b"))
        write(path, ("a", 3), ("b", 6))
        DeltaTable(str(path)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        h.restart()
        assert pairs(h.output())[3:] == [(0, 2), (1, None)]
        assert pairs(h.batch(rows("a", "b"))) == [(0, 3), (1, 6)]
        assert h.commit().tables["prices"]["version"] == DeltaTable(str(path)).version()
        # A file of the checkpoint stands for a version that the table has lost.
        for file in (tmp_path / "root").rglob("prices-*.arrow"):
            file.unlink()
        write(path, ("a", 4))
        version = DeltaTable(str(path)).version()
        h.crash_after("FixOffsets")
        with pytest.raises(Crashed):
            h.batch(rows("a"))
        write(path, ("a", 5))
        DeltaTable(str(path)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        for file in (tmp_path / "root").rglob("prices-*.arrow"):
            file.unlink()
        with pytest.raises(TableVersionGone, match=f"of version {version}, are gone") as met:
            h.restart()
        assert met.value.where is not None
        assert __file__ in met.value.where
        # With another name the join begins with the newest version, also for the batch that is fixed.
        assert pairs(h.restart(priced(str(path), refresh=OnNewVersion(), name="newest"))) == [(0, 5)]


def test_a_version_is_taken_up_every_so_many_batches(tmp_path: Path) -> None:
    """Counted from the batch that took the last one, across restarts; without a policy the first one stays."""
    path = tmp_path / "prices"
    write(path, ("a", 0))
    with (
        Harness(priced(str(path), refresh=EveryBatches(3)), tmp_path / "every") as h,
        Harness(priced(str(path)), tmp_path / "once") as once,
    ):
        seen = []
        for batch in range(7):
            seen += [price for _, price in pairs(h.batch(rows("a")))]
            write(path, ("a", batch + 1))
            if batch in (1, 4):
                h.restart()
            if batch in (0, 3):
                assert pairs(once.batch(rows("a"))) == [(0, 1)]
                once.restart()
        assert seen == [0, 0, 0, 3, 3, 3, 6]


def test_a_version_that_stays_is_joined_though_the_table_has_other_columns(tmp_path: Path) -> None:
    """A restart, also with a fixed batch, has the columns of the version that its batches use."""
    path = tmp_path / "prices"
    write(path, ("a", 1))
    with Harness(priced(str(path)), tmp_path / "root") as h:
        assert pairs(h.batch(rows("a"))) == [(0, 1)]
        h.crash_after("FixOffsets")
        with pytest.raises(Crashed):
            h.batch(rows("a"))
        table = pa.table({"id": [1], "cost": ["dear"]})
        write_deltalake(str(path), table, mode="overwrite", schema_mode="overwrite")
        assert pairs(h.restart()) == [(0, 1)]
        assert pairs(h.batch(rows("a"))) == [(0, 1)]


@pytest.mark.parametrize("refresh", [OnNewVersion(), EveryBatches(2)], ids=["on a new version", "every two"])
def test_rows_of_a_batch_that_runs_again_have_the_columns_that_they_had(tmp_path: Path, refresh: Any) -> None:
    """1.2: whatever columns the table has by then; the next batch names what is gone, and a start after it goes on."""
    path = tmp_path / "prices"
    write(path, ("a", 1))
    with Harness(priced(str(path), refresh=refresh), tmp_path / "root") as h:
        first = h.batch(rows("a"))["out"]
        h.crash_after("FixOffsets")
        with pytest.raises(Crashed):
            h.batch(rows("a"))
        table = pa.table({"id": ["a"], "cost": ["dear"]})
        write_deltalake(str(path), table, mode="overwrite", schema_mode="overwrite")
        assert h.restart()["out"] == first
        with pytest.raises(TableRefused, match="no column 'price', which the version before it has"):
            h.batch(rows("a"))
        h.restart()
        assert h.batch()["out"] == [{"id": "a", "n": 0, "cost": "dear"}]


def test_matches_stand_where_their_row_stood(tmp_path: Path) -> None:
    """In the order of the table's columns, for a collection and for a window, before and after a step with state."""
    path = tmp_path / "prices"
    write(path, ("a", 3), ("a", 1), ("a", 2), ("b", 9), (None, 7))
    job = Job("placed", partitions=2)
    source = job.source(
        "rows", MemorySource("id string, n long, t timestamp"), event_time="t", max_out_of_order=seconds(0)
    )
    joined = source.join_static(str(path), on=["id"], name="before")
    windows = joined.key_by("id").window("w", Tumbling(seconds(10)).drop_late())
    sums = windows.aggregate(prices=agg.collect("price", limit=10), last=agg.last("price"))
    sums.write("windows", MemorySink())
    sums.join_static(str(path), on=["id"], how="left", name="after").select("id", "price").write("out", MemorySink())
    fed = [{"id": key, "n": n, "t": 1} for n, key in enumerate(("a", "b", "c", "a", None))]
    with Harness(job, tmp_path / "root") as h:
        h.batch({"rows": fed[:3]})
        h.batch({"rows": fed[3:]})
        made = h.batch({"rows": [{"id": "a", "n": 9, "t": 20}]})
        assert [(row["id"], row["prices"], row["last"]) for row in sorted(made["windows"], key=lambda r: r["id"])] == [
            ("a", [1, 2, 3, 1, 2, 3], 3),
            ("b", [9], 9),
        ]
        assert sorted((row["id"], row["price"]) for row in made["out"]) == [("a", 1), ("a", 2), ("a", 3), ("b", 9)]
        assert h.commit().totals["join_static:before"] == {"rows": 6, "made": 10}


def test_a_function_gives_the_rows(tmp_path: Path) -> None:
    """Of which a fingerprint is in the Offsets; other rows are another version, and those of a batch may be gone."""
    given = {"price": 1}

    def prices() -> Any:
        from pyspark.sql import SparkSession

        return SparkSession.getActiveSession().createDataFrame([("a", given["price"])], "id string, price long")

    with Harness(priced(prices, refresh=OnNewVersion()), tmp_path) as h:
        assert pairs(h.batch(rows("a"))) == [(0, 1)]
        given["price"] = 2
        assert pairs(h.batch(rows("a"))) == [(0, 2)]
        first = h.commit().tables["prices"]
        assert pairs(h.batch(rows("a"))) == [(0, 2)]
        assert h.commit().tables["prices"] == first
        assert (first["version"], first["taken"]) == (None, 1)
        given["price"] = 3
        h.restart()
        assert pairs(h.batch(rows("a"))) == [(0, 3)]


@pytest.mark.remedy("PEN-OPR-032")
def test_a_version_that_does_not_fit_stops_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its batch is fixed: a column is gone or of another type, or the table is too large."""
    from penstock.runtime.spark import static_tables

    path = tmp_path / "prices"
    write(path, ("a", 1))
    with Harness(priced(str(path), refresh=OnNewVersion()), tmp_path / "root") as h:
        h.batch(rows("a"))
        write(path, ("a", 2), more=pa.array(["x"]))
        assert pairs(h.batch(rows("a"))) == [(0, 2)]
        write_deltalake(str(path), pa.table({"id": ["a"]}), mode="overwrite", schema_mode="overwrite")
        with pytest.raises(TableRefused, match="no column 'price'"):
            h.batch(rows("a"))
        DeltaTable(str(path)).restore(1)
        h.restart()
        assert pairs(h.batch()) == [(0, 2)]
        write(path, ("a", 3))
        monkeypatch.setattr(static_tables, "_MOST_BYTES", 10)
        with pytest.raises(TableRefused, match="bytes, and a joined table may have 10"):
            h.batch(rows("a"))


@pytest.mark.remedy("PEN-JOB-025")
@pytest.mark.parametrize(
    ("schema", "words", "columns"),
    [
        (
            "id long, n long",
            "key 'id' of join_static 'prices' is int64 in the stream and string in the table",
            ["string(id) AS id", "n"],
        ),
        ("id string, n long, Price long", "both have a column 'price'", ["id", "n", "Price AS paid"]),
    ],
    ids=["another type", "a name twice"],
)
def test_a_table_that_does_not_fit_is_refused_by_name(
    tmp_path: Path, schema: str, words: str, columns: list[str]
) -> None:
    """When the job starts, at its line; with the columns cast or renamed it runs."""
    write(tmp_path / "prices", ("a", 1))
    with (
        pytest.raises(TableUnfit, match=words) as met,
        Harness(priced(str(tmp_path / "prices"), schema=schema), tmp_path),
    ):
        pass
    assert __file__ in str(met.value.where)
    with Harness(priced(str(tmp_path / "prices"), schema=schema, columns=columns), tmp_path) as h:
        assert pairs(h.batch({"rows": [{"id": None, "n": 0}]})) == [(0, None)]


def test_explain_says_which_version_a_batch_uses(tmp_path: Path) -> None:
    """And what becomes of rows without a match."""
    write(tmp_path / "prices", ("a", 1))
    for refresh, words in (
        (None, "the version of the first batch for ever"),
        (EveryBatches(10), "the newest version every 10 batches"),
        (OnNewVersion(), "each new version in the batch after it appears"),
    ):
        job = priced(str(tmp_path / "prices"), refresh=refresh)
        texts = [text for section in explain_graph(job.graph()) for entry in section.rows for text in entry]
        assert any(text.endswith(f"by id, rows without a match kept with nulls; {words}") for text in texts)


def test_an_import_joins_the_version_that_was_exported(tmp_path: Path) -> None:
    """10.2: also where nobody has its rows any more but the checkpoint, as of a function's table."""
    path = tmp_path / "prices"
    write(path, ("a", 1))
    with Harness(priced(str(path)), tmp_path / "root") as h:
        assert pairs(h.batch(rows("a"))) == [(0, 1)]
    target = tmp_path / "exported"
    export_checkpoint(tmp_path / "root" / "priced", target, RestoreTarget(), job="priced", now=7)
    write(path, ("a", 2))
    DeltaTable(str(path)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    import_checkpoint(target, tmp_path / "other" / "priced", identity=Identity(holder="tests"), now=9)
    with Harness(priced(str(path)), tmp_path / "other") as h:
        assert pairs(h.batch(rows("a"))) == [(0, 1)]
