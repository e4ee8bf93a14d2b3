"""Run the flights job on real data under a supervisor, kill its driver half way, and compare all it gave with pandas.

Run as `python -m tools.demo`, or `make demo`: Airflow commands the stream, and its task is killed as well. With
`--engine`, or `make demo-engine`, there is no Airflow. KEEP=1 leaves Airflow running at the end.
Everything it makes is in `.demo/`, which each run begins by emptying.
Exit code 0 means that every published window, every row in quarantine, every late row and every count is as computed
apart from the engine (`tools.demo_check`), and that Great Expectations has judged the newest windows.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from tools.demo_command import WINDOWS, ByAirflow, ByHand, Commander
from tools.demo_data import FLIGHTS, unpack
from tools.demo_folder import empty, environment, run_in, scratch
from tools.demo_log import LogStory, read_story
from tools.demo_screen import Screen
from tools.demo_stream import DemoStream
from tools.standalone import StandaloneFailed

ROOT = Path(__file__).resolve().parents[1]
FOLDER = FLIGHTS.parent
CHECKPOINT = FOLDER / "checkpoints" / "flights"
TABLES = {
    "published": FOLDER / "tables" / "hourly_delays",
    "quarantined": FOLDER / "tables" / "hourly_quarantine",
    "late": FOLDER / "tables" / "late_departures",
}
SUPERVISOR_LOG = FOLDER / "supervisor.log"
REPORTS = CHECKPOINT.parent / "_reports" / "flights"
DRIVER_LOGS = CHECKPOINT.parent / "_logs" / "flights"
SUITE = ROOT / "conf" / "quality" / "hourly_quality.json"
ROWS = 336_776


def main() -> int:
    """Run the demo; 1 where anything differs or fails, 130 where it is interrupted."""
    engine_only = sys.argv[1:] == ["--engine"]
    return run_in(FOLDER, lambda console: _demo(console, engine_only=engine_only), failures=(StandaloneFailed,))


def _demo(console: Console, *, engine_only: bool) -> int:
    started = time.monotonic()
    screen = Screen(console, rows=ROWS, rows_done=lambda event: ROWS - sum(event["rows_left"].values()))
    screen.head("1. The input")
    empty(FOLDER)
    size = unpack(FLIGHTS)
    screen.say(f"{FLIGHTS.relative_to(ROOT)}: {ROWS:,} departures of 2013, {size:,} bytes")
    with ExitStack() as ends:
        env = environment(ends.enter_context(scratch()), CHECKPOINT.parent)
        commander: Commander = ByHand()
        if not engine_only:
            screen.head("Airflow")
            commander = ends.enter_context(ByAirflow.running(FOLDER / "airflow", ROOT / "dags", env, screen.say))
        stream = DemoStream("flights", root=CHECKPOINT.parent, project=ROOT, env=env, log=SUPERVISOR_LOG)
        killed = _run(screen, ends.enter_context(stream), commander)
        commander.ask_report()
        screen.head("4. The same, computed by pandas")
        problems = _compare(screen, read_story(CHECKPOINT), killed)
        screen.head("6. The quality report, by Great Expectations")
        commander.see_report(stream, screen.say)
        problems += _reported(screen)
        _say_where(screen)
        if not screen.verdict(problems, time.monotonic() - started):
            return 1
        if os.environ.get("KEEP") == "1":
            commander.keep(screen.say)
    return 0


def _run(screen: Screen, stream: DemoStream, commander: Commander) -> LogStory:
    """Run the stream to its end, and kill its driver half way; return what the log said then."""
    screen.head(f"2. {commander.title}, until kill -9 half way")
    commander.start(stream, screen.say)
    events = stream.events()
    with screen.shown():
        for event in events:
            screen.event(event)
            if event.get("event") == "batch.committed" and sum(event["rows_left"].values()) <= ROWS // 2:
                time.sleep(event["ms"] / 2_000)  # into the middle of the next batch
                break
    screen.say(f"kill -9 of the driver, its JVM and its workers: {stream.kill_driver()} processes, all gone")
    killed = read_story(CHECKPOINT)
    screen.say(f"the log ends with {killed.last}")
    screen.head("3. The supervisor starts it again, and it runs to the end")
    commander.disturb(screen.say)
    with screen.shown():
        for event in events:
            screen.event(event)
    commander.finish(screen.say)
    return killed


def _compare(screen: Screen, story: LogStory, killed: LogStory) -> list[str]:
    """Print the counts, and return what is not as pandas says."""
    import pandas as pd
    from deltalake import DeltaTable

    from tools.demo_check import expect, read_flights, read_suite
    from tools.demo_compare import differences

    suite = read_suite(SUITE)
    expected = expect(read_flights(FLIGHTS), suite)
    tables: dict[str, pd.DataFrame] = {name: DeltaTable(str(path)).to_pandas() for name, path in TABLES.items()}
    problems = list(differences(expected, tables, suite=suite["name"]))
    problems += story.problems(expected.batches, drivers=2)
    counted = {
        kind: {n: story.accounting[kind].get(n, 0) for n in wanted} for kind, wanted in expected.accounting.items()
    }
    for name, shown, wanted in (
        ("row accounting", counted, expected.accounting),
        ("verdicts", story.verdicts, expected.verdicts),
    ):
        if shown != wanted:
            problems.append(f"{name}: {shown} and not {wanted}")
    rows = [
        ("batches", story.batches, expected.batches),
        ("window rows published", len(tables["published"]), len(expected.published)),
        ("window rows in quarantine", len(tables["quarantined"]), len(expected.quarantined)),
        ("late departures", len(tables["late"]), len(expected.late)),
    ]
    rows += [(f"windows: verdict {verdict}", story.verdicts[verdict], n) for verdict, n in expected.verdicts.items()]
    screen.compare(rows)
    screen.head("5. Row accounting, from the commits")
    for line in story.sums():
        screen.say(line)
    screen.say(f"batch ids: {story.id_range}, by {story.drivers} drivers")
    screen.say(f"when the first was killed, the log ended with {killed.last}")
    return problems


def _reported(screen: Screen) -> list[str]:
    """Print what the report found, and return what is not as it was asked for."""
    from penstock.quality.reports.results import Results
    from penstock.quality.reports.summary import runs

    (report,) = runs(Results(REPORTS / "results").read())
    screen.say(
        f"{report.check}: {report.verdict}; {report.windows} windows, {report.failed} failed, {report.noted} noted"
    )
    screen.say(f"its page: {(REPORTS / 'runs' / f'{report.id}.html').relative_to(ROOT)}")
    return [] if report.windows == WINDOWS else [f"the report judged {report.windows} windows and not {WINDOWS}"]


def _say_where(screen: Screen) -> None:
    screen.head("7. Where it is")
    index = REPORTS / "index.html"
    for name, path in {**TABLES, "checkpoint": CHECKPOINT, "drivers' logs": DRIVER_LOGS, "reports": index}.items():
        screen.say(f"{name:<14}{path.relative_to(ROOT)}")
    table = TABLES["published"].relative_to(ROOT)
    screen.head("Look at it")
    screen.say(".venv/bin/penstock streams")
    screen.say(".venv/bin/penstock status flights")
    screen.say(".venv/bin/penstock checkpoints flights")
    screen.say(".venv/bin/python -c 'from deltalake import DeltaTable;")
    screen.say(f'  print(DeltaTable("{table}").to_pandas())\'')


if __name__ == "__main__":
    sys.exit(main())
