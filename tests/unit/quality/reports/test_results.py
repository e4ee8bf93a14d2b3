"""What reports found is kept once for each run, whoever else is at it, together with how far they have looked."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import NOW, judged, runs_of

from penstock.quality.reports import results as module
from penstock.quality.reports.results import SCHEMA, Results, Run


def a_run(name="r1", *, check="quality", version=3, cursor=None, after=None) -> Run:
    return Run(id=name, check=check, at=NOW, version=version, cursor=cursor, after=after)


def before(number: int) -> int | None:
    """Return the cursor that the run before this one left."""
    return number - 1 if number else None


@pytest.fixture
def results(tmp_path) -> Results:
    return Results(tmp_path / "results")


# --- one row a window, rule and run -----------------------------------------------------------


def test_a_run_gives_a_row_for_each_window_and_rule(results):
    """With what the run, the window and the finding say, in the order of windows and rules."""
    assert results.append(a_run(), judged(0, 1, engine="spark"))
    rows = results.read().to_pylist()
    assert [(row["window_start"].minute, row["rule"]) for row in rows] == [
        (0, "s:1:rows(v)"), (0, "s:2:mean(v)"), (1, "s:1:rows(v)"), (1, "s:2:mean(v)"),
    ]  # fmt: skip
    last = rows[-1]
    assert (last["run"], last["check"], last["table_version"], last["engine"]) == ("r1", "quality", 3, "spark")
    assert (last["rows"], last["severity"], last["success"], last["error"]) == (11, "info", False, "why")
    assert (last["unexpected"], last["considered"], last["observed"], last["shown"]) == (None, None, 0.25, None)
    assert last["at"].timestamp() * 1_000_000 == NOW
    assert pa.schema(results.read().schema) == SCHEMA


def test_without_a_table_there_is_nothing(results):
    """Asking makes no folder."""
    assert (results.cursor("quality"), results.has("r1"), results.read().num_rows, results.sweep()) == (
        None,
        False,
        0,
        0,
    )
    assert not results.path.exists()


def test_rows_of_one_run_are_read_alone(results):
    """And some columns of them."""
    for name in ("a", "b"):
        results.append(a_run(name), judged(0, 1))
    assert results.read(run="a")["run"].unique().to_pylist() == ["a"]
    assert results.read(["rule"], run="b").num_rows == 4
    assert results.read(run="c").num_rows == 0


@pytest.mark.parametrize("name", ["a'b", 'a"b', "a/b", "a b", "é", "x" * 200])
def test_odd_names_of_runs_are_found_again(results, name):
    """Airflow's run ids hold colons and plus signs."""
    assert results.append(a_run(name), judged(0))
    assert results.has(name)
    assert not results.has(name[:-1])
    assert results.read(run=name).num_rows == 2


# --- once -------------------------------------------------------------------------------------


def test_a_run_is_committed_once(results):
    """A second time is told, and changes nothing."""
    assert results.append(a_run(cursor=3), judged(0, 1))
    version = DeltaTable(results.path).version()
    assert not results.append(a_run(cursor=4), judged(0, 1, 2))
    assert not Results(results.path).append(a_run(), judged(5))
    assert (runs_of(results), results.cursor("quality")) == ({"r1": 4}, 3)
    assert DeltaTable(results.path).version() == version


@pytest.mark.parametrize("cursor", [None, 3], ids=["picked", "new"])
def test_two_at_once_commit_a_run_once(results, cursor):
    """Threads with handles of their own, at a table that is not there yet."""
    handles = [Results(results.path) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        appended = list(pool.map(lambda handle: handle.append(a_run(cursor=cursor), judged(0, 1)), handles))
    assert sorted(appended) == [False, False, False, True]
    assert runs_of(results) == {"r1": 4}


def test_different_runs_at_once_are_all_committed(results):
    """On windows that were picked they are in nobody's way."""
    names = [f"r{n}" for n in range(6)]
    with ThreadPoolExecutor(3) as pool:
        appended = list(pool.map(lambda name: Results(results.path).append(a_run(name), judged(0)), names))
    assert appended == [True] * 6
    assert runs_of(results) == dict.fromkeys(names, 2)


def test_different_runs_on_the_same_new_windows_at_once_are_one(results):
    """Whoever is first has judged them; the others change nothing."""
    names = [f"r{n}" for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        appended = list(pool.map(lambda name: Results(results.path).append(a_run(name, cursor=7), judged(0)), names))
    assert sorted(appended) == [False, False, False, True]
    assert list(runs_of(results).values()) == [2]


@pytest.mark.parametrize(("first", "second"), [("r1", "r1"), ("r1", "r2")], ids=["the same run", "another run"])
def test_one_that_was_overtaken_between_look_and_commit_changes_nothing(results, monkeypatch, first, second):
    """The other commits in the moment before this one's commit is written."""
    really, overtaken = write_deltalake, []

    def slow(*args, **kwargs):
        if not overtaken:
            overtaken.append(True)
            assert Results(results.path).append(a_run(first, cursor=7), judged(0, 1))
        return really(*args, **kwargs)

    monkeypatch.setattr(deltalake, "write_deltalake", slow)
    assert not results.append(a_run(second, cursor=7), judged(0, 1))
    assert (runs_of(results), results.cursor("quality")) == ({first: 4}, 7)


# --- how far was looked -----------------------------------------------------------------------


def test_the_cursor_moves_with_the_run(results):
    """In one commit: neither is there without the other."""
    results.append(a_run("r1", cursor=3), judged(0))
    log = results.path / "_delta_log" / f"{DeltaTable(results.path).version():020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    assert {a["txn"]["appId"] for a in actions if "txn" in a} == {"run/r1", "cursor/quality"}
    assert sum("add" in a for a in actions) == 1
    results.append(a_run("r2", cursor=5, after=3), judged(1))
    assert results.cursor("quality") == 5


def test_a_report_without_windows_moves_the_cursor(results):
    """Commits that only rewrite files are passed over for good; the run has no rows."""
    assert results.append(a_run(cursor=0), [])
    assert (results.cursor("quality"), results.has("r1"), results.read().num_rows) == (0, True, 0)
    assert results.append(a_run("r2", cursor=4, after=0), [])
    assert not results.append(a_run("r3", cursor=4, after=4), []), "nothing has changed since"
    assert (results.cursor("quality"), results.has("r3")) == (4, False)


def test_a_slower_run_on_the_same_windows_changes_nothing(results):
    """What was looked at by another meanwhile is not counted a second time, however far it has come."""
    results.append(a_run("r1", cursor=5), judged(0))
    for cursor in (5, 4, 0, 9):
        assert not results.append(a_run("r2", cursor=cursor, after=None), judged(0))
        assert not results.append(a_run("r2", cursor=cursor, after=3), judged(0))
    assert (runs_of(results), results.cursor("quality"), results.has("r2")) == ({"r1": 2}, 5, False)


def test_a_cursor_may_go_back_for_a_table_that_was_made_anew(results):
    """By who knew it: its versions begin at 0 again."""
    results.append(a_run("r1", cursor=5), judged(0))
    assert results.append(a_run("r2", cursor=0, after=5), judged(0))
    assert results.cursor("quality") == 0


def test_a_table_that_was_made_anew_has_a_cursor_of_its_own(results):
    """Also where it has come further than the old one had."""
    results.append(Run(id="r1", check="a", at=NOW, version=5, cursor=5, source="old"), judged(0))
    assert (results.cursor("a", "old"), results.cursor("a", "new")) == (5, None)
    assert results.append(Run(id="r2", check="a", at=NOW, version=9, cursor=9, source="new"), judged(0))
    assert (results.cursor("a", "old"), results.cursor("a", "new")) == (5, 9)


def test_the_newest_days_are_read_alone(results):
    """By when windows begin, from the newest of all."""
    day = 24 * 60
    results.append(a_run("r1"), judged(0, day, 2 * day, 2 * day + 1))
    assert {at.day for at in results.newest(1)["window_start"].to_pylist()} == {3}
    assert results.newest(2).num_rows == 6
    assert results.newest(99).num_rows == results.read().num_rows
    assert Results(results.path.with_name("none")).newest(1).num_rows == 0


def test_a_report_on_picked_windows_leaves_the_cursor(results):
    """Also where there is none yet."""
    assert results.append(a_run("r1"), judged(0))
    assert results.cursor("quality") is None
    results.append(a_run("r2", cursor=5), judged(0))
    assert results.append(a_run("r3", version=2), judged(0))
    assert results.cursor("quality") == 5


def test_each_check_has_its_own_cursor(results):
    """Also one whose name holds the other's."""
    results.append(a_run("r1", check="a", cursor=5), judged(0))
    assert results.append(a_run("r2", check="a/b", cursor=2), judged(0))
    assert [results.cursor(check) for check in ("a", "a/b", "b")] == [5, 2, None]


def test_a_run_and_a_check_of_one_name_are_two(results):
    """The one is a name that people choose."""
    results.append(a_run("cursor/quality", check="x", cursor=9), judged(0))
    assert results.cursor("quality") is None
    assert not results.has("x")


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(
    tries=st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from("xy"), st.none() | st.integers(0, 4), st.booleans()),
        max_size=8,
    )
)
def test_any_order_of_runs_is_as_a_plain_model_has_it(tmp_path_factory, tries):
    """A run counts once, and one on new windows only where it goes on from the cursor of its check."""
    results = Results(tmp_path_factory.mktemp("any") / "results")
    done, cursors = [], {}
    for name, check, cursor, knows in tries:
        after = cursors.get(check) if knows else 99
        expected = name not in done and (cursor is None or knows)
        assert results.append(a_run(name, check=check, cursor=cursor, after=after), judged(0)) == expected
        if expected:
            done.append(name)
            cursors.update({check: cursor} if cursor is not None else {})
    assert runs_of(results) == dict.fromkeys(done, 2)
    assert [results.cursor(check) for check in "xy"] == [cursors.get(check) for check in "xy"]


# --- few files --------------------------------------------------------------------------------


def test_many_files_are_made_one_and_say_the_same(results, monkeypatch):
    """Rows, runs and cursors stay; a checkpoint has them too, so that the log need not be kept."""
    monkeypatch.setattr(module, "_MANY_FILES", 4)
    for number in range(10):
        assert results.append(a_run(f"r{number}", cursor=number, after=before(number)), judged(number))
        assert len(DeltaTable(results.path).file_uris()) <= 4
    assert runs_of(results) == {f"r{n}": 2 for n in range(10)}
    assert sorted(results.read()["observed"].drop_null().to_pylist()) == [n / 4 for n in range(10)]
    assert all(results.has(f"r{n}") for n in range(10))
    assert not results.append(a_run("r0"), judged(0))
    assert results.cursor("quality") == 9
    assert list((results.path / "_delta_log").glob("*.checkpoint.parquet"))


def test_runs_are_known_from_the_checkpoint_alone(results, monkeypatch):
    """Delta deletes what a checkpoint holds after a month."""
    monkeypatch.setattr(module, "_MANY_FILES", 3)
    for number in range(3):
        results.append(a_run(f"r{number}", cursor=number, after=before(number)), judged(number))
    log = results.path / "_delta_log"
    newest = json.loads((log / "_last_checkpoint").read_text())["version"]
    for path in log.glob("*.json"):
        if int(path.stem) < newest:
            path.unlink()
    assert (results.has("r0"), results.cursor("quality"), results.read().num_rows) == (True, 2, 6)
    assert results.append(a_run("r3", cursor=3, after=2), judged(3))


def test_findings_of_a_run_keep_their_order_through_compaction(results, monkeypatch):
    """The page lists rules as the suite does."""
    monkeypatch.setattr(module, "_MANY_FILES", 3)
    for name in "abc":
        results.append(a_run(name), judged(0, 1, 2))
    for name in "abc":
        rows = results.read(run=name)
        assert rows["rule"].to_pylist() == ["s:1:rows(v)", "s:2:mean(v)"] * 3
        assert [at.minute for at in rows["window_start"].to_pylist()] == [0, 0, 1, 1, 2, 2]


def test_two_that_make_the_table_at_once_both_go_on(results, monkeypatch):
    """Who comes second meets the other's commit while it makes the table, and takes that."""

    def create(*args, **kwargs):
        monkeypatch.undo()
        assert Results(results.path).append(a_run("other"), judged(0))
        raise CommitFailedError("Failed to commit transaction: Protocol changed since last commit: protocol changed")

    monkeypatch.setattr(DeltaTable, "create", create)
    assert results.append(a_run(), judged(0))
    assert runs_of(results) == {"other": 2, "r1": 2}


def test_reports_that_compact_at_once_keep_each_row_once(results, monkeypatch):
    """Two rewrites of the same files must not both count: each would bring the rows again."""
    monkeypatch.setattr(module, "_MANY_FILES", 2)
    names = [f"r{n}" for n in range(9)]
    results.append(a_run("first"), [])
    with ThreadPoolExecutor(3) as pool:
        appended = list(pool.map(lambda name: Results(results.path).append(a_run(name), judged(0)), names))
    assert appended == [True] * 9
    assert runs_of(results) == dict.fromkeys(names, 2)


def test_a_sweep_spares_what_a_version_of_the_last_week_needs(results, monkeypatch):
    """Who reads meanwhile goes on; the rows stay."""
    monkeypatch.setattr(module, "_MANY_FILES", 3)
    for name in "abc":
        results.append(a_run(name), judged(0))
    before = set(results.path.glob("*.parquet"))
    assert results.sweep() == 0
    assert set(results.path.glob("*.parquet")) == before
    assert results.read().num_rows == 6
