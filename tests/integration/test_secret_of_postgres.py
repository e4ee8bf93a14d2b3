"""What a job with a table of PostgreSQL leaves and prints: the dsn that it got from its environment is nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cli_runner import Shell
from project_samples import JOB, make_project

from tools.postgres_server import PASSWORD

pytestmark = pytest.mark.timeout(900)

INTO_POSTGRES = JOB.replace(
    "from penstock import",
    "import os\n\nfrom penstock.sinks import Mode, Postgres\nfrom penstock import",
    1,
).replace(
    "    return job",
    '    keys = ["user", "window_start"]\n'
    '    totals.write("database", Postgres(os.environ["ORDERS_DSN"], "TABLE", mode=Mode.UPSERT, keys=keys))\n'
    "    return job",
)
EVENTS = """
[spark.conf]
"spark.eventLog.enabled" = "true"
"spark.eventLog.compress" = "false"
"spark.eventLog.dir" = "file://EVENTS"
"""
"""Spark's own record of a run, from which its history server shows the pages of Spark UI."""


@pytest.fixture
def shell(tmp_path, postgres: Any, monkeypatch) -> Iterator[Shell]:
    """A project whose windows go to a new table, and whose Spark writes its events into a folder of the project."""
    root = tmp_path / "project"
    (root / "events").mkdir(parents=True)
    job = INTO_POSTGRES.replace("TABLE", postgres.new_name())
    project = Shell(make_project(root, job=job, rows=300, more=EVENTS.replace("EVENTS", str(root / "events"))))
    monkeypatch.setenv("ORDERS_DSN", postgres.dsn())
    yield project
    project.end()


@pytest.mark.sample(seconds=40)
@pytest.mark.fault("F62")
def test_no_file_and_no_output_has_the_password(shell, postgres: Any, monkeypatch):
    """Of explain, a run, and a run with a wrong password: the checkpoint, Spark's events, and all that they print."""
    printed = [shell.run("explain", "orders"), shell.run("run", "orders", java=True)]
    assert [code for code, _, _ in printed] == [0, 0], printed
    assert "upsert by user, window_start" in printed[0][1]
    monkeypatch.setenv("ORDERS_DSN", postgres.dsn(password=f"not-{PASSWORD}"))
    printed.append(shell.run("run", "orders", "--debug"))
    assert (printed[-1][0], "PEN-SNK-017" in printed[-1][2]) == (78, True), printed[-1]

    assert not [text for _, out, err in printed for text in (out, err) if PASSWORD in text]
    files = [path for path in shell.root.rglob("*") if path.is_file() and not path.is_relative_to(shell.root / ".jars")]
    kept = {path.relative_to(shell.root).parts[0] for path in files}
    assert {"checkpoints", "events", "tables", "jobs"} <= kept
    contents = {path: path.read_bytes() for path in files}
    assert any(b"SparkListenerJobStart" in content for content in contents.values())
    assert not [path for path, content in contents.items() if PASSWORD.encode() in content]
