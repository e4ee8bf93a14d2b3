"""Run the flights job on real data under a supervisor, kill its driver half way, and compare all it gave with pandas.

Run as `python -m tools.demo`, or `make demo`: Airflow commands the stream, and its task is killed as well. With
`--engine`, or `make demo-engine`, there is no Airflow. KEEP=1 leaves Airflow running at the end.
Everything it makes is in `.demo/`, which each run begins by emptying.
Exit code 0 means that every published window, every row in quarantine, every late row and every count is as computed
apart from the engine (`tools.demo_check`), and that Great Expectations has judged the newest windows.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tools.demo_command import WINDOWS, ByAirflow, ByHand, Commander
from tools.demo_data import FLIGHTS, unpack
from tools.demo_log import LogStory, read_story
from tools.demo_stream import DemoFailed, DemoStream
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
LINE_EVERY = 10


class Screen:
    """Show how far a run is: a bar that moves on a terminal, otherwise a line every few batches."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar: Progress | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw while the block runs; the terminal is given back whatever ends it."""
        if not self.console.is_terminal:
            yield
            return
        columns = (TextColumn("{task.percentage:>3.0f}%  {task.fields[said]}"), TimeElapsedColumn())
        self._bar = Progress(
            TextColumn("  {task.description}"), BarColumn(bar_width=26), *columns, console=self.console
        )
        self._bar.add_task("Spark starts", total=ROWS, said="")
        try:
            with self._bar:
                yield
        finally:
            self._bar = None

    def event(self, event: dict[str, Any]) -> None:
        """Show one event of the driver."""
        if event.get("event") not in ("run.took_over", "batch.committed"):
            return
        begins = event["event"] == "run.took_over"
        batch, left = event["next_batch" if begins else "batch"], sum(event["rows_left"].values())
        if self._bar is not None:
            bar, task = self._bar, self._bar.task_ids[0]
            bar.update(task, completed=ROWS - left, description="replaying   ", said=f"batch {batch}")
        elif begins:
            self.say(f"Spark is up; the first batch is {batch}")
        elif batch % LINE_EVERY == 0 or left == 0:
            self.say(f"batch {batch:>2}: {ROWS - left:>7,} of {ROWS:,} rows, {event['ms']:,.0f} ms")

    def say(self, text: str) -> None:
        """Print one line of detail."""
        self.console.print(f"  {text}", highlight=False, markup=False, soft_wrap=True)

    def head(self, text: str) -> None:
        """Print what comes next."""
        self.console.print(f"\n[bold]{text}[/bold]", highlight=False)


def main() -> int:
    """Run the demo; 1 where anything differs or fails, 130 where it is interrupted."""
    console = Console(width=None if sys.stdout.isatty() else 80)
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock, _interrupted_by(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"another demo runs in {FOLDER}", highlight=False)
            return 1
        try:
            return _demo(Screen(console), engine_only=sys.argv[1:] == ["--engine"])
        except KeyboardInterrupt:
            console.print("\ninterrupted; nothing is left running", highlight=False)
            return 130
        except (DemoFailed, StandaloneFailed, OSError) as problem:
            console.print(f"\n{problem}", highlight=False, markup=False, soft_wrap=True)
            return 1


def _demo(screen: Screen, *, engine_only: bool) -> int:
    started = time.monotonic()
    screen.head("1. The input")
    _empty()
    size = unpack(FLIGHTS)
    screen.say(f"{FLIGHTS.relative_to(ROOT)}: {ROWS:,} departures of 2013, {size:,} bytes")
    scratch = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    with ExitStack() as ends:
        ends.callback(shutil.rmtree, scratch, ignore_errors=True)
        env = _environment(scratch)
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
        seconds = time.monotonic() - started
        if problems:
            screen.head(f"Not equal. {seconds:,.0f} s")
            for problem in problems:
                screen.say(problem)
            return 1
        screen.console.print(f"\n[bold green]All equal.[/bold green] {seconds:,.0f} s\n", highlight=False)
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


def _environment(scratch: Path) -> dict[str, str]:
    """Return our own environment, with all that Spark would leave in the system's temporary folder put in `scratch`."""
    options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={scratch}".strip()
    ours = {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch), "SPARK_SUBMIT_OPTS": options}
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, **ours}


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
    screen.say(f"{'':<28}{'Penstock':>10}{'pandas':>10}")
    for name, ours, theirs in rows:
        screen.say(f"{name:<28}{ours:>10,}{theirs:>10,}{'' if ours == theirs else '  <-'}")
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


def _empty() -> None:
    """Remove what the last demo left, but the lock that we hold."""
    for path in FOLDER.iterdir():
        if path.name == "lock":
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextmanager
def _interrupted_by(*numbers: signal.Signals) -> Iterator[None]:
    """Let these signals end the demo as Ctrl-C does, so that what it started is ended as well."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
