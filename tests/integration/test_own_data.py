"""The path of a new user, as docs/start.md has it: a project by init, then a topic or files of their own."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Shell
from deltalake import DeltaTable
from project_samples import JARS

from tools.doc_blocks import python_blocks

pytestmark = [pytest.mark.timeout(900), pytest.mark.integration]

_PAGE = (Path(__file__).resolve().parents[2] / "docs" / "start.md").read_text("utf-8")
OWN_DATA = _PAGE[_PAGE.index("## 6. Read your own data") :]
KAFKA, FILES = (part.partition("```")[0] for part in OWN_DATA.split("```toml\n")[1:])
SINKS = "".join(block.code for block in python_blocks(OWN_DATA))
SETTLE = 5.5
"""Seconds after which a file counts as whole: the five of `Files`, and some room."""
CLICKS = [("ann", "/", "12:00:05"), ("ann", "/buy", "12:00:50"), ("bob", "/", "12:01:10")]
PER_MINUTE = [("ann", 0, 2, "/buy"), ("bob", 1, 1, "/")]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A project with the job clicks, as `penstock init` writes it."""
    project = Shell(tmp_path / "project")
    project.root.mkdir()
    (project.root / ".jars").symlink_to(JARS)
    assert project.run("init", "clicks")[0] == 0
    yield project
    project.end()


def read_from(shell: Shell, table: str) -> None:
    """Replace the source in the job's file."""
    settings = shell.root / "conf" / "jobs" / "clicks.toml"
    before, _, rest = settings.read_text("utf-8").partition("[sources.clicks]")
    settings.write_text(f"{before}{table}\n{rest[rest.index('[tables]') :]}", "utf-8")


def add_sinks(shell: Shell) -> None:
    """Add those of the page to the job's code."""
    module = shell.root / "jobs" / "clicks.py"
    code = module.read_text("utf-8")
    module.write_text(code.replace("    return job", textwrap.indent(SINKS, "    ") + "    return job"), "utf-8")


def published(shell: Shell) -> list[tuple[Any, ...]]:
    """Return the windows of the Delta table: user, minute, clicks and last page."""
    table = DeltaTable(str(shell.root / "tables" / "clicks" / "per_minute")).to_pyarrow_table().to_pylist()
    return sorted((row["user"], row["window_start"].minute, row["clicks"], row["last_page"]) for row in table)


@pytest.mark.sample(seconds=45)
def test_a_topic_and_files_of_ones_own_are_read_into_tables_and_postgres(
    shell: Shell, kafka: Any, topic: str, postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables of the page go into the job's file, and the job runs; bad rows are in the quarantine of the source.

    Another kind of source needs --from empty, and another table for its quarantine. An upsert replaces the rows of
    the first run, and a Delta table has both.
    """
    monkeypatch.setenv("CLICKS_DSN", postgres.dsn())
    kafka.create(topic, 1)
    records = [{"user": user, "page": page, "t": f"2026-11-24T{time}Z"} for user, page, time in CLICKS]
    kafka.produce(topic, [*(json.dumps(record).encode() for record in records), b"no JSON"])
    add_sinks(shell)
    read_from(shell, KAFKA.replace('["clicks"]', f'["{topic}"]').replace("127.0.0.1:9092", kafka.address))
    code, _, err = shell.run("run", "clicks", "--drain")
    assert code == 0, err
    assert published(shell) == PER_MINUTE
    rows = postgres.ask('SELECT "user", extract(minute from window_start), clicks FROM clicks_per_minute ORDER BY 1')
    assert [(user, int(minute), clicks) for user, minute, clicks in rows] == [row[:3] for row in PER_MINUTE]
    bad = DeltaTable(str(shell.root / "tables" / "clicks" / "bad_clicks")).to_pyarrow_table()
    assert bad["_raw"].to_pylist() == ["no JSON"]

    landing = shell.root / "landing"
    landing.mkdir()
    lines = ["page,t,user", *(f"{page},2026-11-24T{time}Z,{user}" for user, page, time in CLICKS)]
    (landing / "first.csv").write_text("\n".join(lines) + "\n")
    read_from(shell, FILES)
    module = shell.root / "jobs" / "clicks.py"
    module.write_text(module.read_text("utf-8").replace("clicks/bad_clicks", "clicks/bad_lines"), "utf-8")
    time.sleep(SETTLE)  # a file that is younger may still be written, and a drain does not wait for it
    code, _, err = shell.run("run", "clicks", "--from", "empty", "--drain")
    assert code == 0, err
    assert published(shell) == sorted(PER_MINUTE * 2)
    assert len(postgres.ask("SELECT 1 FROM clicks_per_minute")) == len(PER_MINUTE)
