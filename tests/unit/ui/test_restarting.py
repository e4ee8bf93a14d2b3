"""The page of a restart: the fields of the DAG, what comes again in which sink, and one question before it is sent."""

from __future__ import annotations

import re
import shlex
from html import unescape
from pathlib import Path

import pytest
from checkpoint_samples import own
from hypothesis import given
from hypothesis import strategies as st
from project_samples import make_project
from starlette.datastructures import QueryParams
from typer.testing import CliRunner
from ui_site import Site, read

from penstock.checkpoint.log.entries import ManifestRef, Release, Restore, Save, SourceProgress, StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.main import app
from penstock.ui import restarting
from penstock.ui.restarting import Wanted

FILE = StagedFile(path="a", size=2_048, rows=5, checksum="x", stats={})
STATE = {"minutely": {"0": ManifestRef(path="m", size=1, checksum="x")}}
SOURCES = {"orders": SourceProgress(position={"rows": 7}, partitions={}, ended=False)}


@pytest.fixture
def site(tmp_path):
    """Six batches; each has read 1,234 rows and put five into a table."""
    filled = Site(make_project(tmp_path / "project", rows=10))
    filled.batches(6, staged={"totals": [FILE]}, state=STATE, sources=SOURCES)
    manifest = filled.root / "checkpoints" / "orders" / "state" / "minutely" / "0" / "m"
    manifest.parent.mkdir(parents=True)
    manifest.write_bytes(b"m")
    return filled


def owned(site):
    return own(Log(LocalStore(site.root / "checkpoints" / "orders")), writer="w2")


def leave(log):
    log.append(Release(epoch=log.epoch, writer=log.writer, reason="stopped"))


def test_the_form_has_the_fields_of_the_dag(site):
    """What can be said there can be said here; `test_factory` sees that it is sent by its names (issue 17, finding 6)."""
    page = site.get("/jobs/orders/restart", mounted="/penstock").text
    fields = {attrs.get("name") for tag, attrs in read(page).tags if tag in ("input", "select")} - {None}
    assert fields == {"start", "truncate", "partitions", "state", "drop", "rows", "bytes", "files", "note"}


def test_steps_and_sources_of_the_checkpoint_can_be_dropped(site):
    """10.1: the job's code may no longer have them; `--drop` takes the names of both."""
    page = read(site.get("/jobs/orders/restart?drop=orders").text)
    offered = {attrs["value"]: "checked" in attrs for tag, attrs in page.tags if attrs.get("name") == "drop"}
    assert offered == {"minutely": False, "orders": True}


def test_what_comes_again_is_counted(site):
    """Rows that stay and come a second time are called duplicates; nothing is to be worked out by who reads."""
    text = site.text("/jobs/orders/restart?start=batch=3")
    assert "2 batches after it are undone; the 2,468 rows that they read are read again." in text
    assert "totals: 10 rows of 2 batches, kept and published again: duplicates." in text
    truncated = site.text("/jobs/orders/restart?start=batch=3&truncate=on")
    assert "totals: 10 rows of 2 batches, removed, and published again." in truncated
    assert "duplicates" not in truncated
    assert "Nothing is undone." in site.text("/jobs/orders/restart")


def test_what_a_restore_has_undone_is_not_counted_twice(site):
    """Its batches are undone already; the rows that its tables kept stay as well."""
    log = owned(site)
    log.append(Restore(epoch=log.epoch, writer=log.writer, batch=4, source="batch", saved=None, partitions=None))
    leave(log)
    text = site.text("/jobs/orders/restart?start=batch=3")
    assert "1 batch after it is undone; the 1,234 rows that it read are read again." in text
    assert "totals: 10 rows of 2 batches, kept" in text


def test_saved_checkpoints_are_offered(site):
    """Also by a link to the page."""
    log = owned(site)
    commit = recover(log.log).commit
    log.append(Save(epoch=log.epoch, writer=log.writer, name="friday", commit=commit))
    leave(log)
    page = site.get("/jobs/orders/restart?start=saved%3Dfriday").text
    assert '<option value="saved=friday" selected>friday, saved at batch 5</option>' in page


def test_a_start_that_is_not_offered_is_named_as_it_is_written(site, monkeypatch):
    """An old batch, or a data checkpoint, is not the beginning of all, whatever the list has."""
    monkeypatch.setattr(restarting, "_OFFERED", 1)
    text = site.text("/jobs/orders/restart?start=batch%3D3")
    assert "From batch=3" in text
    assert "everything is read from the start" not in text


def test_beginning_anew_stands_apart(site):
    """A slip in the list of checkpoints never loses the state."""
    page = site.get("/jobs/orders/restart", mounted="/penstock").text
    assert '<option value="empty"' not in page
    assert (
        'href="/penstock/jobs/orders/restart?start=empty"'
        in site.get("/penstock/jobs/orders/restart", mounted="/penstock", root_path="/penstock").text
    )
    anew = site.get("/jobs/orders/restart?start=empty", mounted="/penstock").text
    assert '<input type="hidden" name="start" value="empty">' in anew
    assert "6 batches after it are undone" in site.text("/jobs/orders/restart?start=empty")


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("start=batch=77", "batch 77 is not kept"),
        ("start=nonsense", "is none of last, batch=N"),
        ("start=saved=nobody", "was never saved"),
        ("truncate=on", "Choose a batch or a savepoint to start from, or do not truncate sinks."),
        ("start=empty&partitions=4", "no state"),
        ("start=batch=3&partitions=x", "no number of partitions"),
        ("start=batch=3&partitions=0", "no number of partitions"),
        ("start=batch=3&rows=-1", "no number of rows"),
        ("start=batch=3&bytes=64 MB", "'64 MB' is not a size"),
        ("start=batch=3&bytes=0", "no number of bytes"),
        ("start=batch=3&files=few", "no number of files"),
        ("start=batch=3&state=nonsense", "is not STEP=TABLE"),
        ("start=batch=3&drop=../x", "no name of a step"),
    ],
)
def test_what_would_be_refused_cannot_be_sent(site, query, why):
    """It is said while the form is filled in, with the way out; the button stays dead."""
    answer = site.get(f"/jobs/orders/restart?{query}", mounted="/penstock")
    assert answer.status_code == 200
    text = " ".join("".join(read(answer.text).words).split())
    assert "This would be refused" in text
    assert why in text
    assert "data-refused" in answer.text


def test_the_command_says_what_the_form_says(site):
    """Alone the page triggers nothing: it shows what to type, and `penstock restart` takes it."""
    query = "start=batch=3&truncate=on&rows=7&bytes=64+MiB&files=9&note=it%27s+wrong&state=minutely%3Dtotals&drop=hourly&partitions=4"
    page = site.get(f"/jobs/orders/restart?{query}").text
    assert "<button" not in page
    command = shlex.split(unescape(re.search(r"<pre[^>]*>(.*?)</pre>", page)[1]))
    assert command[:3] == ["penstock", "restart", "orders"]
    result = CliRunner().invoke(app, [*command[1:], "--project", str(site.root), "--json"])
    assert result.exit_code == 0, result.output
    stream = Site(Path(site.root)).newest()
    assert (stream.start, stream.note) == ("batch=3", "it's wrong")
    assert stream.limits.set_limits() == {"rows": 7, "bytes": 64 << 20, "files": 9}
    assert stream.options.model_dump() == {
        "partitions": 4, "state": {"minutely": "totals"}, "truncate_sinks": True, "drop": ("hourly",)
    }  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from(["start", "truncate", "partitions", "state", "drop", "rows", "bytes", "files", "note"]),
        st.text(),
    )
)
def test_no_address_breaks_the_page(query):
    """Whatever stands in it is refused as a value, or becomes one word of a command."""
    wanted = Wanted.of(QueryParams(query))
    try:
        words = shlex.split(wanted.words())
    except ValueError:
        return
    assert not wanted.note or words[-1] == f"--note={wanted.note}"
