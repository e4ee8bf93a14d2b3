"""What a job says of a table is checked when it is written, and when it is opened (issue 19: bad input)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from delta_reading import Written, k_of, read_all, reader_of

from penstock.config.settings import load_settings
from penstock.errors import ConfigError, SourceNotFound, TableUnreadable
from penstock.graph.policies import OnGap, OnRewrite
from penstock.sources import DeltaTable, Start, bytes_, version

WRONG: dict[str, dict[str, Any]] = {
    "start=<Start.EARLIEST": {"start": Start.EARLIEST},
    "start=7": {"start": 7},
    "columns='k' is a text": {"columns": "k"},
    "is no list of names": {"columns": []},
    "has a name twice": {"columns": ["k", "k"]},
    "splits is 0": {"splits": 0},
    "on_rewrite= has no meaning": {"changes": True, "on_rewrite": OnRewrite.SKIP},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_setting_is_named(what: str) -> None:
    """When the source is made, at the user's line."""
    with pytest.raises(ConfigError, match=what):
        DeltaTable("t", **WRONG[what])


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Before the first batch; a folder without a log is no table, and a later version no start."""
    with pytest.raises(SourceNotFound, match=f"{tmp_path}"):
        reader_of(tmp_path)
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(SourceNotFound, match="no Delta table"):
        reader_of(tmp_path)
    written = Written(tmp_path)
    assert read_all(reader_of(tmp_path, start=version(1)))[0] == []
    with pytest.raises(ConfigError, match="start is version 2, and the newest is 0"):
        reader_of(tmp_path, start=version(2)).backlog(None)
    with pytest.raises(ConfigError, match="columns= has 'x'"):
        reader_of(tmp_path, columns=["x"])
    written.commit({"metaData": "broken"})


def test_a_feed_must_be_there_from_the_version_on_that_is_read_first(tmp_path: Path) -> None:
    """Commits before it do not say what they have changed."""
    written = Written(tmp_path)
    written.commit(written.file(0))
    written.commit(written.metadata("k long", **{"delta.enableChangeDataFeed": "true"}))
    written.commit(written.file(1))
    with pytest.raises(TableUnreadable, match="needs a change data feed"):
        reader_of(tmp_path, changes=True, start=version(1))
    assert k_of(read_all(reader_of(tmp_path, changes=True, start=version(2)))[0]) == [1]
    reader = reader_of(tmp_path, changes=True)
    rows, at = read_all(reader)
    assert [(row["k"], row["_change_type"], row["_commit_version"]) for row in rows] == [
        (0, "insert", 3), (1, "insert", 3)
    ]  # fmt: skip
    written.commit(written.metadata("k long"))
    with pytest.raises(TableUnreadable, match="needs a change data feed"):
        reader.backlog(at)


def test_a_table_is_described_in_a_file_as_in_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path from the project's root, a version as text, choices by value."""
    (tmp_path / "conf" / "jobs").mkdir(parents=True)
    (tmp_path / "conf" / "penstock.toml").write_text("")
    (tmp_path / "tables" / "orders").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    text = '[sources.orders]\nkind = "delta_table"\npath = "tables/orders"\n'
    file = tmp_path / "conf" / "jobs" / "orders.toml"

    def made(more: str) -> Any:
        file.write_text(text + more)
        return load_settings(tmp_path, "orders")[1].source("orders")

    assert made("") == DeltaTable(tmp_path / "tables" / "orders")
    assert made('start = "version 7"\nat_most = "64 MiB"\ncolumns = ["k"]\non_gap = "skip"\non_rewrite = "skip"\n') == (
        DeltaTable(
            tmp_path / "tables" / "orders",
            start=version(7),
            at_most=bytes_(64 * 2**20),
            columns=("k",),
            on_gap=OnGap.SKIP,
            on_rewrite=OnRewrite.SKIP,
        )
    )
    assert made('start = "latest"\nchanges = true\n').start is Start.LATEST
    with pytest.raises(ConfigError, match="start"):
        made('start = "versoin 7"\n')
