"""State is read as a table without the code of its job (issue 5: `penstock state`, `penstock.state.read`)."""

from __future__ import annotations

import csv
import io
import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from test_state_rewrite import feeds, job_of
from typer.testing import CliRunner

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.cli import state as state_command
from penstock.cli.main import app
from penstock.errors import CannotRestore, CheckpointCorrupt, RootMissing, UnknownName
from penstock.state import read, section_reader
from penstock.state.manifest import Manifest, ManifestRef
from penstock.testing import Harness

pytestmark = pytest.mark.sample(2, of="readers of state")


def as_rows(rows: list[dict]) -> list[tuple]:
    """Return rows in an order of their own."""
    return sorted((tuple(sorted(row.items())) for row in rows), key=str)


@pytest.mark.sample(2)
@pytest.mark.parametrize("form", ["both", "odd", "whole", "update", "sliding"])
def test_what_is_read_is_what_the_job_keeps(tmp_path, form):
    """Now, behind an older batch, and of a data checkpoint."""
    kept = {}
    with Harness(job_of(form, partitions=3, every=4), tmp_path) as h:
        for batch, rows in enumerate(feeds(form, 6)):
            h.batch({"rows": rows}, at=10 * (batch + 1))
            kept[h.commit().batch] = as_rows(h.state("step"))
        newest = h.commit()
        assert as_rows(read(tmp_path, "restored", "step").to_pylist()) == kept[newest.batch]
        for batch in list(kept)[2:5]:
            assert as_rows(read(tmp_path, "restored", "step", at=batch).to_pylist()) == kept[batch]
        ref = newest.snapshots["step"]
        table_rows = as_rows(read(tmp_path, "restored", "step", at=f"snapshot={ref.version}").to_pylist())
        if form != "odd":  # whose intervals are microseconds in the table
            assert table_rows == as_rows(read(tmp_path, "restored", "step", at=ref.batch).to_pylist())
        if form == "update":
            some = read(tmp_path, "restored", "step", where=pc.field("n") > 5).to_pylist()
            assert as_rows(some) == [row for row in kept[newest.batch] if dict(row)["n"] > 5]


def test_what_is_not_there_is_named(tmp_path):
    """Job, step, batch, and a manifest of a version that did not say how slices are merged."""
    with pytest.raises(RootMissing):
        read(tmp_path, "restored", "step")
    with Harness(job_of("sliding", partitions=1), tmp_path) as h:
        with pytest.raises(CannotRestore, match="no batch is in force"):
            read(tmp_path, "restored", "step")
        h.batch({"rows": [{"k": "a", "t": 3, "v": 4}]})
        with pytest.raises(UnknownName, match="batch 0 has no state of step 'other'; there is step"):
            read(tmp_path, "restored", "other")
        with pytest.raises(CannotRestore, match="batch 9 is not kept"):
            read(tmp_path, "restored", "step", at=9)
        with pytest.raises(ValueError, match="is none of last"):
            read(tmp_path, "restored", "step", at="yesterday")


def test_damage_is_found_on_the_way(tmp_path):
    """As a task would find it."""
    with Harness(job_of("idle", partitions=1), tmp_path) as h:
        h.batch({"rows": [{"k": f"k{n}", "v": n} for n in range(100)]})
        (path,) = (tmp_path / "restored" / "state" / "step" / "0").glob("*.arrow")
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 1
        path.write_bytes(bytes(data))
        with pytest.raises(CheckpointCorrupt):
            read(tmp_path, "restored", "step")


def test_files_that_a_newer_batch_has_merged_are_let_go(tmp_path):
    """A notebook reads for days: a deleted file keeps its room while it is mapped, and a copy of one on HDFS its own."""
    folder, mapped = LocalFolder(tmp_path) / "restored" / "state" / "step" / "0", set()
    section_reader.forget()
    with Harness(job_of("update", partitions=1), tmp_path) as h:
        for batch in range(12):
            h.batch({"rows": [{"k": f"k{n}", "v": batch} for n in range(50)]})
            read(tmp_path, "restored", "step")
            ref = h.commit().state["step"]["0"]
            named = Manifest.read(folder / ref.path, ManifestRef(ref.path, ref.size, ref.checksum)).files()
            assert section_reader._open[folder].keys() <= {*named}
            mapped |= section_reader._open[folder].keys()
    assert mapped > {*named}


@pytest.fixture
def project(tmp_path):
    """Return a project whose job cannot even be imported, and that has a checkpoint."""
    (tmp_path / "conf" / "jobs").mkdir(parents=True)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "conf" / "penstock.toml").write_text('[checkpoint]\nroot = "checkpoints"\n')
    (tmp_path / "jobs" / "restored.py").write_text("raise RuntimeError('nobody imports this')\n")
    with Harness(job_of("update", partitions=2), tmp_path / "checkpoints") as h:
        h.batch({"rows": [{"k": f"k{n}", "v": n} for n in range(9)] + [{"k": None, "v": 50}]})
        h.batch({"rows": [{"k": "k1", "v": 100}]})
    return tmp_path


def asked(project, *more):
    """Return what the command prints."""
    return CliRunner().invoke(app, ["state", "restored", "step", "--project", str(project), *more])


def test_the_command_prints_a_page_csv_or_json(project):
    """With conditions of the columns' own types."""
    page = asked(project, "--limit", "3")
    assert (page.exit_code, page.output.splitlines()[0].split()) == (0, ["k", "n", "_expires"])
    assert len(page.output.splitlines()) == 5
    assert page.output.splitlines()[-1].startswith("and more than these 3")
    rows = list(csv.DictReader(io.StringIO(asked(project, "--csv").output)))
    assert {row["k"]: int(row["n"]) for row in rows} == {**{f"k{n}": n for n in range(9)}, "k1": 101, "null": 50}
    printed = [json.loads(line) for line in asked(project, "--json", "--where", "n>=8").output.splitlines()]
    assert {row["k"]: row["n"] for row in printed} == {"k8": 8, "k1": 101, None: 50}
    then = [json.loads(line) for line in asked(project, "--json", "--at", "0", "--where", "k=k1").output.splitlines()]
    assert then == [{"k": "k1", "n": 1, "_expires": None}]
    assert json.loads(asked(project, "--json", "--where", "k=null").output)["n"] == 50
    assert len(asked(project, "--json", "--where", "k!=null", "--where", "n<3").output.splitlines()) == 2
    assert asked(project, "--where", "n>1000").output == "no rows\n"


def test_a_page_shows_decimals_as_numbers_and_texts_as_they_are(capsys):
    """A person reads the page; quotes mark texts within lists and maps alone."""
    totals = pa.array(["2108467.80", None]).cast(pa.decimal128(12, 2))
    rows = pa.table({"total": totals, "who": ["dörte", None], "seen": [["a"], []]})
    state_command._print_page(iter([rows]), 5)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["total", "who", "seen"], ["2108467.80", "dörte", '["a"]'], ["null", "null", "[]"]]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--where", "nothing"], "'nothing' is not COLUMN=VALUE"),
        (["--where", "m=1"], "there is no column 'm'; there is k, n, _expires"),
        (["--where", "n=one"], "'one' is no value of column 'n', which is int64"),
        (["--at", "yesterday"], "is none of last"),
    ],
)
def test_what_was_asked_wrongly_is_said(project, more, message):
    """With exit code 2, as for all of the command line."""
    done = asked(project, *more)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_data_checkpoints_are_listed_with_what_goes_back_to_them(project):
    """Below the batches that are kept; with the keys that the state had."""
    with Harness(job_of("update", partitions=2, every=1), project / "checkpoints") as h:
        h.batch({"rows": [{"k": "k1", "v": 100}]})
        h.batch({"rows": [{"k": "k1", "v": 100}]})

    def listed(*more):
        return CliRunner().invoke(app, ["checkpoints", "restored", "--project", str(project), *more]).output

    listed_versions = json.loads(listed("--json"))["snapshots"]
    assert [snapshot["steps"]["step"] for snapshot in listed_versions[:1]] == [{"version": 0, "rows": 10}]
    assert "snapshot=step@0" in listed()


def test_a_step_that_is_not_there_is_no_wrong_batch(project):
    """It ends with 78, as what needs a person does."""
    done = CliRunner().invoke(app, ["state", "restored", "other", "--project", str(project)])
    assert done.exit_code == 78
    assert "has no state of step 'other'; there is step" in done.output


def test_partitions_of_before_a_column_was_added_have_nulls_in_it(tmp_path):
    """Rows of all partitions have the same columns, in CSV too."""
    from test_state_rewrite import MemorySink, MemorySource

    from penstock import Job

    def job(state):
        made = Job("restored", partitions=4)
        rows = made.source("rows", MemorySource("k string, v long")).key_by("k")

        def keep(values, old):
            return {**(old or {"w": 1}), "n": sum(values)}

        rows.update_state_by_key("step", keep, value="v", state=state, touched_only=True).write("out", MemorySink())
        return made

    with Harness(job("n long, w long"), tmp_path) as h:
        h.batch({"rows": [{"k": f"k{n}", "v": n} for n in range(12)]})
        h.restart(job("n long, w long, m string"))
        h.batch({"rows": [{"k": "k1", "v": 5}]})
        table_rows = read(tmp_path, "restored", "step")
        assert table_rows["m"].null_count == 12
        assert as_rows(table_rows.to_pylist()) == as_rows(h.state("step"))
