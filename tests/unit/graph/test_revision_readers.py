"""SEMANTICS 2.6: what reads a window that revises says what it makes of revisions, or the graph is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Job, agg, count, micros, minutes, seconds
from penstock.errors import JobError, RetractionsLost, RevisionsMisread
from penstock.graph.keyed import StatefulSteps
from penstock.graph.policies import OnFail
from penstock.graph.revision_readers import needs_retractions
from penstock.runtime.inspect.explain import explain_graph
from penstock.sinks import Delta, MemorySink, Mode, Postgres
from penstock.sources import MemorySource
from penstock.triggers import Every
from penstock.windows import (
    BatchWindow,
    Cumulative,
    GlobalWindow,
    Session,
    Sliding,
    Tumbling,
    TupleWindow,
    drop_late,
    late_to,
)

REVISING = Tumbling(seconds(10)).update_late(within=minutes(1), then=drop_late())
SESSIONS = Session(seconds(10)).update_late(within=minutes(1), then=drop_late())
EARLY = Session(seconds(10)).drop_late().emit_on(count(1))
GROWING = Cumulative(seconds(10), step=seconds(5)).update_late(within=minutes(1), then=drop_late())
LONG = minutes(2)


class Table(MemorySink):
    """A sink that replaces rows by keys."""

    def __init__(self, *keys: str) -> None:
        super().__init__()
        self.keys = keys


def job_of(spec=REVISING):
    """Return a job, and the output of its window."""
    job = Job("revising", partitions=1, interval=seconds(1))
    rows = job.source("rows", MemorySource("k string, t timestamp, v int"), event_time="t", max_out_of_order=seconds(5))
    return job, rows.key_by("k").window("w", spec).aggregate(n=agg.count())


def said(job: Job, of: str) -> str:
    """Return what explain says of a node; `of` is how its words begin."""
    steps = next(section for section in explain_graph(job.graph()) if section.title == "Steps")
    (text,) = [words for _, words in steps.rows if words.startswith(of)]
    return text


def windowed(out):
    return out.key_by("k").window("again", Tumbling(minutes(1)).drop_late()).aggregate(m=agg.sum("n"))


def updated(out):
    return out.key_by("k").update_state_by_key("f", lambda new, old: old, value="n", state="m long")


def mapped(out):
    return out.key_by("k").map_with_state(
        "f", lambda *_: None, state="m long", output="k string, m long", unbounded=True
    )


def joined(out):
    return out.join("j", out.select("k", "window_end AS e"), on=["k"], within=(seconds(-5), seconds(5)))


def once(*keys, within=LONG):
    return lambda out: out.deduplicate("d", by=list(keys), within=within)


@pytest.mark.parametrize(
    ("then", "spec", "of", "words"),
    [
        (mapped, REVISING, "map_with_state f", "the function gets revisions as rows of their own"),
        (mapped, REVISING.discarding(), "map_with_state f", "the function gets revisions as rows of their own"),
        (windowed, REVISING.discarding(), "window again", "rows of their own, late where they come after the allowed"),
        (
            joined,
            REVISING.discarding(),
            "join j",
            "early panes join as rows of their own, and revisions after the closing are late",
        ),
        (once("k", "window_end", "_revision"), REVISING, "deduplicate d", "revisions are rows of their own"),
    ],
    ids=["state function", "of panes", "window of panes", "join of panes", "deduplicate by revision"],
)
def test_explain_says_what_a_step_does_with_revisions(then, spec, of: str, words: str) -> None:
    """Issue 20.7: a step behind a window that revises says in `explain` what it does with revisions."""
    job, out = job_of(spec)
    then(out.filter("n > 0")).write("out", MemorySink())
    assert words in said(job, of)


@pytest.mark.parametrize(
    ("then", "spec"),
    [
        (windowed, REVISING),
        (updated, REVISING),
        (joined, REVISING),
        (once("k", "window_end"), REVISING),
        (once("k", "window_end"), REVISING.discarding()),
        (lambda out: windowed(once("k", "window_end", "_revision")(out)), REVISING),
    ],
    ids=["window", "values alone", "join", "deduplicate", "deduplicate of panes", "window after deduplicate"],
)
def test_a_step_that_would_count_rows_twice_is_refused(then, spec) -> None:
    """Issue 20.7: or the graph is refused, with the step, the window and what would go wrong."""
    job, out = job_of(spec)
    then(out).write("out", MemorySink())
    with pytest.raises(RevisionsMisread, match=r"reads revisions of window 'w', .*would take each of them") as why:
        job.graph()
    assert str(Path(__file__).name) in str(why.value.where)


def aggregated(spec):
    return lambda out: out.key_by("k").window("x", spec).aggregate(m=agg.count())


FUNCTION = {"state": "m long", "output": "k string, m long", "unbounded": True}
BEHIND = {
    "filter": lambda out: out.filter("n > 0"),
    "select": lambda out: out.select("*"),
    "with_columns": lambda out: out.with_columns(m="n + 1"),
    "union": lambda out: out.union(out.filter("n > 0")),
    "cache": lambda out: out.cache(),
    "map_batches": lambda out: out.map_batches("x", lambda rows, info: rows, output="k string, m long", same_rows=True),
    "join_static": lambda out: out.join_static("prices", on=["k"], name="x"),
    "check": lambda out: out.check("x", suite={"expectations": []}, on_fail=OnFail.DROP),
    "map_with_state": lambda out: out.key_by("k").map_with_state("x", lambda *_: None, **FUNCTION),
    "map_with_state_arrow": lambda out: out.key_by("k").map_with_state_arrow("x", lambda *_: None, **FUNCTION),
    "update_state_by_key": lambda out: out.key_by("k").update_state_by_key(
        "x", lambda new, old: old, value="n", state="m long"
    ),
    "deduplicate": lambda out: out.deduplicate("x", by=["k", "window_end"], within=LONG),
    "join": joined,
    "join_as_of": lambda out: out.join_as_of("x", out.select("k", "n AS m"), on=["k"], within=seconds(5)),
    "tumbling windows": aggregated(Tumbling(minutes(1)).drop_late()),
    "sliding windows": aggregated(Sliding(minutes(1), every=seconds(10)).drop_late()),
    "cumulative windows": aggregated(Cumulative(minutes(1), step=seconds(10)).drop_late()),
    "sessions": aggregated(Session(seconds(10)).drop_late()),
    "batch windows": aggregated(BatchWindow(seconds(2), slide=seconds(1))),
    "rows of batch windows": lambda out: out.key_by("k").window("x", BatchWindow(seconds(2), slide=seconds(1))).rows(),
    "windows of rows": aggregated(TupleWindow(count(3), unbounded=True)),
    "global windows": aggregated(GlobalWindow(unbounded=True).trigger(Every(count(1)))),
}
REFUSED = {
    "update_state_by_key",
    "deduplicate",
    "join",
    "join_as_of",
    *(n for n in BEHIND if "ows" in n or n == "sessions"),
}
"""Those that would count a row twice that contains the one before."""


@pytest.mark.parametrize("discarding", [False, True], ids=["all rows", "panes"])
@pytest.mark.parametrize("behind", BEHIND)
def test_every_step_says_what_it_does_with_revisions_or_is_refused(behind: str, *, discarding: bool) -> None:
    """Issue 20.7: each kind of step that can read a window, with both contents of revisions."""
    job, out = job_of(REVISING.discarding() if discarding else REVISING)
    BEHIND[behind](out).write("out", MemorySink())
    if behind == "deduplicate" or (behind in REFUSED - {"rows of batch windows"} and not discarding):
        with pytest.raises(RevisionsMisread, match="reads revisions of window 'w'"):
            job.graph()
        return
    steps = next(section for section in explain_graph(job.graph()) if section.title == "Steps")
    read = [words for _, words in steps.rows if not words.startswith(("source", "window w", "sink"))]
    assert read
    assert [words for words in read if "revision" not in words.partition("; ")[2]] == []


def test_every_kind_of_step_is_asked_for_revisions() -> None:
    """A new method of streams, or a new kind of windows, is in the test above, or reads no windows."""
    _, out = job_of()
    no_steps = {"key_by", "window", "write", "foreach_batch", "max_rate", "snapshots", "advice", "transform"}
    assert {name for name in dir(out) if not name.startswith("_")} - {"windowed"} <= {*BEHIND, *no_steps}
    assert len(StatefulSteps.windowed) == len({"time and sessions", "batch", "rows", "global"})


@pytest.mark.parametrize(
    ("keys", "spec", "words"),
    [
        ((), REVISING, "revisions are rows of their own, with the highest _revision the newest"),
        (("k", "window_end"), REVISING, "the newest revision of a key replaces others"),
        (("k", "window_end", "_revision"), REVISING.discarding(), "revisions are rows of their own"),
    ],
    ids=["append", "upsert", "upsert of panes"],
)
def test_explain_says_how_revisions_reach_a_sink(keys, spec, words: str) -> None:
    """Issue 20.7: append-only sinks get the columns, a sink by keys keeps the newest."""
    job, out = job_of(spec)
    out.write("out", Table(*keys))
    assert said(job, "sink out").endswith(words)


def test_explain_says_that_a_filter_may_drop_the_newest_revision() -> None:
    """Issue 20.7: a predicate of a result lets the row before stay the newest; panes have none before."""
    for spec, words in ((REVISING, "where it drops a revision the one before stays the newest"), (None, "")):
        job, out = job_of(spec or REVISING.discarding())
        out.filter("n > 1").write("out", MemorySink())
        assert words in said(job, "filter")
        assert bool(words) == ("stays the newest" in said(job, "filter"))


@pytest.mark.remedy("PEN-JOB-021")
@pytest.mark.parametrize(
    ("keys", "spec", "problem", "more"),
    [
        (["k"], REVISING, "a revision of an older one; add 'window_end'", "window_end"),
        (["k", "window_start"], GROWING, "a revision of an older one; add 'window_end'", "window_end"),
        (["k", "_revision"], REVISING.discarding(), "a revision of an older one; add 'window_end'", "window_end"),
        (["k", "window_end"], REVISING.discarding(), "the rows that came after it; add '_revision'", "_revision"),
    ],
    ids=["without bounds", "windows of one start", "panes without bounds", "of panes"],
)
def test_a_sink_by_keys_that_would_lose_rows_is_refused(keys, spec, problem: str, more: str, tmp_path: Path) -> None:
    """Issue 20.7: `Delta(mode=UPSERT)` keeps the newest by key and window, and no less; the error says what to add."""
    job, out = job_of(spec)
    out.write("out", Delta(tmp_path / "table", mode=Mode.UPSERT, keys=keys))
    with pytest.raises(RevisionsMisread, match=problem):
        job.graph()
    job, out = job_of(spec)
    out.write("out", Delta(tmp_path / "table", mode=Mode.UPSERT, keys=[*keys, more]))
    assert job.graph().sinks


def test_a_step_that_renames_the_bounds_is_trusted_with_its_keys(tmp_path: Path) -> None:
    """The graph does not know what an expression of the user's makes of the bounds."""
    job, out = job_of()
    out.select("k", "date_trunc('HOUR', window_end) AS hour", "n").write(
        "out", Delta(tmp_path / "table", mode=Mode.UPSERT, keys=["k", "hour"])
    )
    assert job.graph().sinks


@pytest.mark.parametrize(
    ("then", "keys", "spec"),
    [
        (lambda out: out.select("k", "n", "_pane", "_revision"), ["k"], REVISING),
        (lambda out: out.select("k", "n", "_pane", "_revision"), ["k"], SESSIONS),
        (lambda out: out.select("*", "n AS m"), ["k"], REVISING),
        (lambda out: out.filter("n > 0").with_columns(e="n + 1"), ["k", "e"], REVISING),
        (lambda out: out.filter("n > 0").with_columns(m="n + 1"), ["k", "m"], SESSIONS),
        (lambda out: out.select("k", "n AS e", "window_end", "_pane"), ["k", "e"], REVISING),
    ],
    ids=["selected", "of sessions", "a star", "with_columns", "with_columns of sessions", "another column"],
)
def test_keys_behind_select_and_with_columns_need_the_window(then, keys, spec) -> None:
    """What lies between is understood, and no column of the window is among what the keys are made of."""
    job, out = job_of(spec)
    then(out).write("out", Delta("table", mode=Mode.UPSERT, keys=keys))
    with pytest.raises((RevisionsMisread, RetractionsLost), match=r"add 'window_end'|with_columns changes 'm'"):
        job.graph()


@pytest.mark.parametrize(
    "then",
    [
        lambda out: out.with_columns(e="date(WINDOW_END)"),
        lambda out: out.select("k", "date(window_end) e"),
        lambda out: out.select("k", "window_end as `e`"),
        lambda out: out.with_columns(s="struct(window_end AS e)").select("k", "s.*"),
        lambda out: out.with_columns(s="struct(window_end AS e)").select("k", "s.e"),
        lambda out: out.transform("t", lambda df: df),
    ],
    ids=["with_columns", "without AS", "quoted", "a star of a struct", "of a struct", "a function"],
)
def test_keys_made_of_the_window_are_trusted(then) -> None:
    """The graph does not know what an expression makes of the bounds, nor what a function does."""
    job, out = job_of()
    then(out).write("out", Delta("table", mode=Mode.UPSERT, keys=["k", "e"]))
    assert job.graph().sinks


def test_the_window_says_how_long_it_is_revised_and_what_follows() -> None:
    """API: `update_late(within=…, then=…)`; explain has the allowed lateness and the fate of later rows."""
    job, out = job_of(Tumbling(seconds(10)).update_late(within=minutes(1), then=late_to("too_late")))
    out.write("out", MemorySink())
    job.late("too_late").write("late", MemorySink())
    text = said(job, "window w")
    assert "revised within 1 min of the end by all rows of the window, later rows to too_late" in text


def test_a_window_with_one_pane_is_the_same_whether_it_discards_or_not() -> None:
    """3.2: the pane has all rows since the start, so neither the text nor the state depends on what was said."""
    accumulating, discarding = (
        job_of(window)[1]._node
        for window in (Tumbling(seconds(10)).drop_late(), Tumbling(seconds(10)).drop_late().discarding())
    )
    assert accumulating.spec.window == discarding.spec.window


def test_columns_of_panes_are_not_taken() -> None:
    """A column cannot take the name of those of panes."""
    job = Job("taken", partitions=1)
    rows = job.source("rows", MemorySource("k string, t timestamp, v int"), event_time="t", max_out_of_order=seconds(5))
    with pytest.raises(JobError, match="_pane"):
        rows.key_by("k").window("w", REVISING).aggregate(_pane=agg.count())


TABLE = Delta("table", mode=Mode.UPSERT, keys=["k", "window_end"])


@pytest.mark.parametrize(
    ("then", "sink", "why"),
    [
        (lambda out: out, Table("k", "window_end"), "Table deletes no rows"),
        (lambda out: out.select("k", "window_end", "n"), TABLE, "select leaves out or changes '_pane'"),
        (lambda out: out.select("k", "_pane", "n", "window_start AS window_end"), TABLE, "changes 'window_end'"),
        (lambda out: out.with_columns(k="upper(k)"), TABLE, "with_columns changes 'k'"),
        (lambda out: out.filter("_pane = 'ON_TIME'"), TABLE, "filter .* may drop the rows that say so"),
        (lambda out: out.filter("_PANE <> 'RETRACTED'"), TABLE, "filter .* may drop the rows that say so"),
        (lambda out: out.with_columns(_PANE="'x'"), TABLE, "with_columns changes '_pane'"),
        (lambda out: out.transform("t", lambda df: df), TABLE, "a transform may change '_pane'"),
        (once("k", "window_end", "_revision"), TABLE, "deduplicate 'd' drops .*; add '_pane' to its keys"),
    ],
    ids=[
        "a sink without deletes",
        "no pane",
        "other keys by select",
        "other keys",
        "a filter by pane",
        "a filter by pane in capitals",
        "another pane in capitals",
        "a function",
        "deduplicate without pane",
    ],
)
def test_a_table_that_would_keep_replaced_sessions_is_refused(then, sink, why: str) -> None:
    """2.6: what replaces a session may have another window, so a table by keys has to delete the old one."""
    job, out = job_of(SESSIONS)
    then(out).write("out", sink)
    with pytest.raises(RetractionsLost, match=why):
        job.graph()


@pytest.mark.parametrize("spec", [REVISING, REVISING.discarding(), SESSIONS], ids=["panes", "discarding", "sessions"])
@pytest.mark.parametrize(
    ("within", "fits"),
    [(seconds(59), False), (minutes(1), False), (micros(60_000_001), False), (micros(60_000_002), True)],
    ids=str,
)
def test_deduplicate_outlasts_the_revisions_that_it_reads(spec, within, *, fits: bool) -> None:
    """2.5, 7.6: a session that ends at e is revised until the watermark is e + lateness, by a row at e - 1."""
    for sink in (MemorySink(), TABLE):
        job, out = job_of(spec)
        rows = out.deduplicate("first", by=["k", "window_end", "_revision", "_pane"], within=LONG)
        once("k", "window_end", "_revision", "_pane", within=within)(rows.filter("n > 0")).write("out", sink)
        if fits and not (spec == REVISING.discarding() and sink is TABLE):
            assert job.graph()
            continue
        with pytest.raises(RevisionsMisread, match="choose a longer within=" if not fits else "add '_revision'"):
            job.graph()


def test_deduplicate_outlasts_what_a_function_makes_of_revisions() -> None:
    """7.1, 7.6: a row that a function makes of another has its event time; the result for a key has a time of its own."""
    for then, fits in ((mapped, False), (updated, True)):
        job, out = job_of(REVISING.discarding())
        once("k", within=seconds(5))(then(out)).write("out", MemorySink())
        if fits:
            assert job.graph()
            continue
        with pytest.raises(RevisionsMisread, match=r"deduplicate 'd' would drop revisions of window 'w' as late"):
            job.graph()


@pytest.mark.parametrize(("spec", "fits"), [(EARLY, True), (EARLY.discarding(), False)], ids=["all rows", "new rows"])
def test_a_table_of_open_sessions_takes_panes_that_replace_each_other(spec, *, fits: bool) -> None:
    """2.6, 3.2: a row of a table by key and window would be replaced by the rows that came after it."""
    job, out = job_of(spec)
    out.write("out", TABLE)
    if fits:
        assert said(job, "sink out").endswith(
            "the newest revision of a key replaces others; a row that is taken back is deleted"
        )
    else:
        with pytest.raises(RevisionsMisread, match="would replace a pane by the rows that came after it"):
            job.graph()
    job, out = job_of(spec)
    out.write("out", Table("k", "window_end", "_revision"))
    assert "early panes after 1 new rows of" in said(job, "window w")


@pytest.mark.parametrize(
    ("spec", "then", "keys", "words", "taken_back"),
    [
        (SESSIONS, lambda out: out, ["k", "window_end"], "replaces others; a row that is taken back is deleted", True),
        (
            SESSIONS,
            lambda out: out.filter("n > 1").with_columns(m="2 * n").select("k", "window_end", "m", "_pane"),
            ["k", "window_end"],
            "a row that is taken back is deleted",
            True,
        ),
        (
            SESSIONS,
            once("k", "window_end", "_revision", "_pane"),
            ["k", "window_end"],
            "a row that is taken back is deleted",
            True,
        ),
        (SESSIONS, lambda out: out, ["k", "window_end", "_revision"], "revisions are rows of their own", False),
        (SESSIONS.discarding(), lambda out: out, ["k", "window_end", "_revision"], "rows of their own", False),
        (REVISING, lambda out: out, ["k", "window_end"], "the newest revision of a key replaces others", False),
    ],
    ids=["as emitted", "with other columns", "without duplicates", "by revision", "panes", "time windows"],
)
def test_a_table_by_keys_deletes_the_sessions_that_others_replace(spec, then, keys, words: str, *, taken_back) -> None:
    """2.6: `explain` says so, and only where a table needs it the step emits what it takes back."""
    job, out = job_of(spec)
    then(out).write("out", Delta("table", mode=Mode.UPSERT, keys=keys))
    out.write("log", MemorySink())
    assert words in said(job, "sink out")
    (step,) = [step for step in job.graph().steps if step.name == "w"]
    assert needs_retractions(step, job.graph().nodes) is taken_back


def test_tables_of_postgres_take_sessions_that_replace_each_other() -> None:
    """2.6: they delete what is taken back, as Delta tables do; a sink that does not is refused."""
    for spec in (SESSIONS, EARLY):
        job, out = job_of(spec)
        out.write("out", Postgres("host=nowhere", "sessions", mode=Mode.UPSERT, keys=["k", "window_end"]))
        assert said(job, "sink out").endswith("a row that is taken back is deleted")


@pytest.mark.remedy("PEN-JOB-023")
@pytest.mark.parametrize(
    "sink",
    [TABLE, MemorySink(), Table("k", "window_end", "_revision")],
    ids=["as emitted", "a sink that appends", "by revision"],
)
def test_a_refused_table_of_sessions_is_written_as_the_window_emits_them(sink) -> None:
    """A select that lost _pane is refused; without it, into a sink that appends, or by revision, the job is taken."""
    job, out = job_of(SESSIONS)
    out.select("k", "window_end", "n").write("out", TABLE)
    with pytest.raises(RetractionsLost):
        job.graph()
    job, out = job_of(SESSIONS)
    out.write("out", sink)
    assert [step.name for step in job.graph().steps]


def test_a_table_by_the_start_of_a_session_is_refused() -> None:
    """2.6: a session may begin where one did that is forgotten, and would replace it."""
    job, out = job_of(SESSIONS)
    out.write("out", Delta("table", mode=Mode.UPSERT, keys=["k", "window_start"]))
    with pytest.raises(RevisionsMisread, match="add 'window_end' to its keys"):
        job.graph()
