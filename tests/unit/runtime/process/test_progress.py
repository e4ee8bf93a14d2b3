"""A run is shown as one JSON event a batch, or as a bar that counts per cent of a bounded source."""

from __future__ import annotations

import io
import json
import re

import pytest
import structlog
from checkpoint_samples import commit, offsets, own
from rich.console import Console

from penstock.checkpoint.log.entries import StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import ComputeFailed
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.progress import BarProgress, JsonProgress
from penstock.runtime.process.signals import Ending
from penstock.runtime.restore.target import RestoreTarget, find_superseded

HERE = LocalFolder("no-snapshots")

FILE = StagedFile(path="x", size=9, rows=4, checksum="", stats={})
BATCH = {
    "accounting": {"source:s": {"read": 50}, "window:w": {"rows": 50, "late": 3}},
    "staged": {"out": [FILE]},
    "watermarks_out": {"w": 60_000_000},
    "due": {"w": 120_000_000},
}


@pytest.fixture
def recovered():
    """Where a job stands that has committed batches 0 and 1."""
    log = Log(MemoryStore())
    owned = own(log)
    for batch in range(2):
        owned.append(offsets(batch))
        owned.append(commit(batch, **BATCH))
    return recover(log)


def run(progress, recovered):
    """Tell a whole run."""
    progress.starting({"checkpoint": "checkpoints/orders"})
    progress.superseded(find_superseded(RestoreTarget(restore=True, batch=0).resolve(recovered, HERE)))
    progress.took_over(recovered, {"s": 100})
    for n in (1, 2):
        done = commit(1 + n, held={"out": [FILE]} if n == 2 else {}, **BATCH)
        progress.committed(done, ms=25.04, timings={"Compute": 20.0}, left={"s": 100 - 50 * n})
    progress.stopping(30.0)
    progress.ended(Ending.STOPPED, batches=2, rows=100, seconds=1.23)
    progress.close()


def test_machines_get_one_line_of_json_for_each_event(capsys, recovered):
    """With everything that a Commit counts."""
    configure_events(json=True)
    run(JsonProgress("orders"), recovered)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == [
        "run.starting", "restore.superseded", "run.took_over", "batch.committed", "batch.committed", "run.stopping",
        "run.ended",
    ]  # fmt: skip
    assert all({"job", "level", "timestamp"} <= line.keys() for line in lines)
    batch = lines[3]
    assert (batch["batch"], batch["rows"], batch["ms"], batch["timings"]) == (2, 50, 25.0, {"Compute": 20.0})
    assert (batch["output"], batch["late"], batch["rows_left"]) == ({"out": 4}, {"w": 3}, {"s": 50})
    assert (batch["watermark"], batch["next_due"]) == ({"w": "1970-01-01T00:01:00Z"}, "1970-01-01T00:02:00Z")
    assert lines[4]["held"] == {"out": 4}
    assert (lines[6]["ending"], lines[6]["seconds"]) == ("stopped", 1.2)


def test_an_error_is_an_event_too(capsys):
    """With its code, its remedy, and what the command will end with."""
    configure_events(json=True)
    JsonProgress("orders").failed(ComputeFailed("no memory", where="batch 3"))
    event = json.loads(capsys.readouterr().out)
    assert (event["event"], event["level"], event["code"], event["exit_code"]) == (
        "run.failed", "error", "PEN-OPR-002", 75,
    )  # fmt: skip
    assert (event["what"], event["where"], event["remedy"]) == ("no memory", "batch 3", ComputeFailed.remedy)
    assert "ComputeFailed: PEN-OPR-002 no memory (batch 3)" in event["traceback"]


def test_people_see_only_warnings_of_the_log(capsys):
    """On standard error, in words, beside the bar."""
    configure_events(json=False)
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("log.entry_given_up", slot=3)
    assert capsys.readouterr() == ("", "warning: log.entry_given_up slot=3\n")


def screen(width: int = 200) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=True, width=width, color_system=None), text


def test_people_see_a_bar_that_moves(recovered):
    """Per cent of the rows, and what the last batch was like."""
    console, text = screen()
    progress = BarProgress("orders", console)
    run(progress, recovered)
    shown = text.getvalue()
    assert "resumes at batch 2" in shown
    assert "back to batch 0: these rows stay published" in shown
    assert "batch 3 · 50 rows · 1,997 rows/s · 25 ms · late 3 · watermark 1970-01-01 00:01:00Z" in shown
    assert "next 1970-01-01 00:02:00Z · held 4" in shown
    assert "100%" in shown
    assert "stopping; what runs has 30 s to end" in shown
    assert shown.rstrip().endswith("stopped  2 batches · 100 rows · 1.2 s")


def test_on_a_narrow_terminal_the_words_give_way_and_not_the_share(recovered):
    """80 columns, and a batch about which there is much to say."""
    console, text = screen(80)
    progress = BarProgress("orders", console)
    progress.took_over(recovered, {"s": 50})
    progress.committed(commit(2, **BATCH), ms=1_234_567.0, timings={}, left={"s": 0})
    progress.close()
    last = text.getvalue().splitlines()[-2]
    assert "orders" in last
    assert "100%" in last
    assert "50/50 batch 2" in last


def test_without_bounded_sources_there_is_no_per_cent(recovered):
    """Nobody knows how much will come."""
    console, text = screen()
    progress = BarProgress("orders", console)
    progress.took_over(recovered, {"s": None})
    progress.committed(commit(2, **BATCH), ms=25.0, timings={}, left={"s": None})
    progress.failed(ComputeFailed("x"))
    assert "batch 2 · 50 rows" in text.getvalue()
    assert "%" not in text.getvalue()


def test_a_source_or_table_that_is_never_asked_for_is_warned_of(capsys):
    """A typing error in a name shows here."""
    configure_events(json=True)
    JsonProgress("orders").unused("tables.totls", "conf/jobs/orders.toml")
    assert json.loads(capsys.readouterr().out)["key"] == "tables.totls"
    console, text = screen()
    BarProgress("orders", console).unused("tables.totls", "conf/jobs/orders.toml")
    assert text.getvalue().strip() == "the job never asks for tables.totls of conf/jobs/orders.toml"


def test_who_watches_is_told_all_of_it_in_words(capsys):
    """The supervisor on a terminal: a line for each event, with the time, and nothing of what is not known."""
    configure_events(json=False, narrated=True)
    structlog.get_logger().info("stream.running", job="orders", reason=None)
    structlog.get_logger().warning("supervisor.trouble", reason="no storage")
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d stream\.running job=orders", first)
    assert second.endswith("warning: supervisor.trouble reason=no storage")
