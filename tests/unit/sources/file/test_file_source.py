"""What a job says of a folder is checked when it is written, and when it is opened (issue 19: bad input)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from folder_files import Numbers, Rows, lines_of, parquet_of, read_all, reader_of
from source_reading import end_of_batch
from structlog.testing import capture_logs

from penstock import minutes
from penstock.config.settings import load_settings
from penstock.errors import ColumnsForgotten, ConfigError, FolderUnreadable, SourceNotFound
from penstock.graph.policies import Afterwards, OnMissingColumn, OnNewColumn
from penstock.sources import Csv, Files, Json, Parquet, Text, bytes_, files
from penstock.sources.file.formats import Lines
from penstock.sources.file.parts import ColumnRules
from penstock.sources.file.reader import AtMost

WRONG: dict[str, dict[str, Any]] = {
    "pattern": {"pattern": "../*"},
    "with_columns has '_offset'": {"with_columns": ["_offset"]},
    "splits is 0": {"splits": 0},
    "move_to= belongs to": {"move_to": "done"},
    "which needs it": {"afterwards": Afterwards.MOVE},
    "in the folder that is read": {"afterwards": Afterwards.MOVE, "move_to": "in/done"},
    "is in the folder": {"afterwards": Afterwards.MOVE, "move_to": "in"},
    "another file system": {"afterwards": Afterwards.MOVE, "move_to": "webhdfs://h/done"},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_setting_is_named(what: str) -> None:
    """When the source is made, at the user's line."""
    with pytest.raises(ConfigError, match=what):
        Files("in", format=Text(), **WRONG[what])


def test_a_hidden_folder_below_may_take_what_is_done() -> None:
    """It is passed over."""
    assert Files("in", format=Text(), afterwards=Afterwards.MOVE, move_to="in/_done").move_to == "in/_done"
    assert Files("in", format=Text(), afterwards=Afterwards.MOVE, move_to="in_done").move_to == "in_done"


@pytest.mark.remedy("PEN-SRC-001")
def test_a_folder_that_is_not_there_is_named_when_it_is_opened(tmp_path: Path) -> None:
    """Before the first batch; a file is no folder. Once it is there, the source opens."""
    folder = tmp_path / "in"
    with pytest.raises(SourceNotFound, match=f"{folder}"):
        reader_of(folder)
    lines_of(folder, 1)
    with pytest.raises(SourceNotFound, match=f"{folder}"):
        reader_of(folder)
    folder.unlink()
    lines_of(folder / "a", 1)
    assert read_all(reader_of(folder))[0] == [1]


@pytest.mark.remedy("PEN-SRC-020")
def test_a_folder_that_may_not_be_read_or_changed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user who runs tests may do all, so the system's answers are made up; permitted, it opens."""

    def denied(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", denied)
        with pytest.raises(FolderUnreadable, match=f"{tmp_path}"):
            reader_of(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(FolderUnreadable, match="moved or deleted"):
            reader_of(tmp_path, afterwards=Afterwards.DELETE)
    assert reader_of(tmp_path, afterwards=Afterwards.DELETE).backlog(None)["0"].latest == 0


def test_a_move_to_another_disk_is_refused(tmp_path: Path) -> None:
    """Where no file can be renamed to."""
    places = (Path("/dev/shm"), Path(__file__).parent)  # noqa: S108 - nothing is made there
    another = next(place for place in places if place.stat().st_dev != tmp_path.stat().st_dev)
    with pytest.raises(ConfigError, match="another disk"):
        reader_of(tmp_path, afterwards=Afterwards.MOVE, move_to=str(another / "penstock-done"))


def test_a_column_of_the_file_must_not_hide_one_of_the_format(tmp_path: Path) -> None:
    """Both would have the name."""
    with pytest.raises(ConfigError, match="'_path'"):
        reader_of(tmp_path, Rows(fixed=pa.schema([("_path", pa.string())])), with_columns=["_path"])


def test_the_format_of_a_record_is_that_of_a_line() -> None:
    """Of text and bytes empty lines are records too."""
    assert Files("in", format=Json("k long")).file_format == Lines(Json("k long"))
    assert Files("in", format=Text()).file_format == Lines(Text(), skips_empty=False)
    assert Files("in", format=Parquet()).file_format == Parquet()


@pytest.mark.remedy("PEN-SRC-025")
def test_columns_without_ddl_are_those_of_the_first_file_and_stay(tmp_path: Path) -> None:
    """The position has them; where another file is the first one by then, the job is told to name them."""
    with pytest.raises(ConfigError, match=r"Parquet\('id long, at timestamp'\)"):
        reader_of(tmp_path, Parquet())
    lines_of(tmp_path / "0", "no Parquet", at=0)
    parquet_of(tmp_path / "2", pa.table({"k": [2], "s": ["x"]}), at=2)
    parquet_of(tmp_path / "1", pa.table({"k": [1]}), at=1)
    (tmp_path / "0").unlink()
    reader = reader_of(tmp_path, Parquet())
    assert reader.schema == pa.schema([("k", pa.int64())])
    position = end_of_batch(reader, None)
    assert position["facts"]["columns"] == {"k": "bigint"}
    (tmp_path / "1").unlink()
    with pytest.raises(ColumnsForgotten, match="the job has read the columns 'k bigint'"):
        reader_of(tmp_path, Parquet()).backlog(position)
    reader_of(tmp_path, Rows()).backlog(position)


def test_another_pattern_is_named(tmp_path: Path) -> None:
    """Files that it means in addition are not read where they are old."""
    lines_of(tmp_path / "a", 1)
    _, position = read_all(reader_of(tmp_path, pattern="*"))
    with capture_logs() as logs:
        reader_of(tmp_path, pattern="**/*").backlog(position)
    assert [log["event"] for log in logs] == ["source.pattern_changed"]


def test_policies_of_columns_are_for_what_names_them() -> None:
    """By themselves strict for files of columns, lenient for lines; refused where no line has names."""
    given: dict[str, Any]
    for form, given, rules in (
        (Parquet("k long"), {}, ColumnRules(OnNewColumn.FAIL, OnMissingColumn.FAIL)),
        (Json("k long"), {}, ColumnRules(OnNewColumn.IGNORE, OnMissingColumn.NULLS)),
        (
            Json("k long"), {"on_missing_column": OnMissingColumn.FAIL},
            ColumnRules(OnNewColumn.IGNORE, OnMissingColumn.FAIL),
        ),
    ):  # fmt: skip
        source = Files("in", format=form, **given)
        assert source._rules(source.file_format) == rules
    for name, value in (("on_new_column", OnNewColumn.IGNORE), ("on_missing_column", OnMissingColumn.FAIL)):
        with pytest.raises(
            ConfigError, match=f"{name} is for Parquet, CSV with a header and JSON; lines of Text name no"
        ):
            Files("in", format=Text(), **{name: value})


def test_a_file_of_the_project_describes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kind = "files"`, with all settings; what they cannot be is named with its line."""
    monkeypatch.chdir(tmp_path)
    lines = [
        '[sources.landing]', 'kind = "files"', 'path = "webhdfs://h:9870/in"', 'pattern = "*.csv"', 'at_most = "64 MiB"',
        'format = { kind = "csv", schema = "k long", header = true }', 'afterwards = "move"', 'move_to = "webhdfs://h:9870/done"',
        'settle = "1 minutes"', 'on_new_column = "ignore"', 'with_columns = ["_path"]',
    ]  # fmt: skip
    (tmp_path / "conf" / "jobs").mkdir(parents=True)
    (tmp_path / "conf" / "penstock.toml").write_text("")
    toml = tmp_path / "conf" / "jobs" / "orders.toml"
    toml.write_text("\n".join(lines))
    assert load_settings(tmp_path, "orders")[1].source("landing") == Files(
        "webhdfs://h:9870/in", pattern="*.csv", at_most=bytes_(2**26), format=Csv("k long", header=True), settle=minutes(1),
        afterwards=Afterwards.MOVE, move_to="webhdfs://h:9870/done", on_new_column=OnNewColumn.IGNORE, with_columns=("_path",),
    )  # fmt: skip
    toml.write_text("\n".join(lines).replace("64 MiB", "64 rows"))
    with pytest.raises(ConfigError, match=r"64 rows.*orders.toml:5"):
        load_settings(tmp_path, "orders")


@pytest.mark.parametrize(
    ("text", "amount"), [("1 file", files(1)), ("1_000 files", files(1000)), ("2 KiB", bytes_(2048))]
)
def test_an_amount_as_a_file_has_it(text: str, amount: AtMost) -> None:
    """A number and what it counts."""
    assert AtMost.parse(text) == amount
    with pytest.raises(ConfigError, match="reads nothing"):
        AtMost.parse("0 files")


@pytest.mark.spark
def test_ddl_is_checked_when_the_source_is_opened(spark: Any, tmp_path: Path) -> None:
    """As that of records."""
    assert Files(tmp_path, format=Csv("k long", header=True)).open(spark).schema == Numbers().columns()
    for form, what in (
        (Csv("k array<int>", header=True), "cannot hold"),
        (Parquet("k long, k int"), "twice"),
        (Parquet("k nix"), "DDL"),
    ):
        with pytest.raises(ConfigError, match=what):
            Files(tmp_path, format=form).open(spark)


def test_a_file_that_has_not_settled_tells_the_columns_and_is_not_read(tmp_path: Path) -> None:
    """Issue 19, point 3: a job that starts right after its first file; a half-written file tells none, and is passed over."""
    table = pa.table({"k": [1]})
    pq.write_table(table, tmp_path / "b.parquet")
    (tmp_path / "a.parquet").write_bytes((tmp_path / "b.parquet").read_bytes()[:-9])
    os.utime(tmp_path / "a.parquet", (1_700_000_000, 1_700_000_000))
    reader = Files(tmp_path, format=Parquet(), settle=minutes(60)).open(None)
    assert reader.schema == pa.schema([("k", pa.int64())])
    assert [waiting.rows for waiting in reader.backlog(None).values()] == [0]
