"""Run the departures job on a topic that is written meanwhile, kill its driver and the broker, and compare with pandas.

Run as `python -m tools.demo_kafka [FLIGHTS]`, or `make demo-kafka`. A producer replays the first so many departures of
a year, or all, with a burst of ten times its speed before the middle, and another one while the broker is away; records
come late, twice, or cannot be decoded. The driver is killed in the first burst, and the broker half way, while the
producer writes.
Everything the demo makes is in `.demo-kafka/`, which each run begins by emptying. The exception is the PostgreSQL
server, which ends with the demo.
Exit code 0 means that the topic has each record once and in order, and that in every place the job writes to, each
window, late row, record in quarantine and count is as computed apart from the engine (`tools.demo_kafka_check`).
"""

from __future__ import annotations

import socket
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from tools.demo_data import unpack
from tools.demo_folder import empty, environment, run_in, scratch
from tools.demo_kafka_log import read_batches, rows_read
from tools.demo_kafka_producer import Replay
from tools.demo_kafka_records import AIRPORTS, Record, records_of
from tools.demo_log import read_story
from tools.demo_screen import Screen
from tools.demo_stream import DemoFailed, DemoStream
from tools.kafka_server import KafkaServer
from tools.postgres_server import running
from tools.waiting import until

JOB = SOURCE = "departures"
ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".demo-kafka"
SETTINGS = tomllib.loads((ROOT / "conf" / "jobs" / f"{JOB}.toml").read_text("utf-8"))
CHECKPOINT = ROOT / SETTINGS["checkpoint"]["root"] / JOB
TABLES = {name: ROOT / path for name, path in SETTINGS["tables"].items()}
SERVERS: str = SETTINGS["sources"][SOURCE]["servers"]
(TOPIC,) = SETTINGS["sources"][SOURCE]["topics"]
DSN = "DEPARTURES_DSN"
"""The environment variable that says to the job how to connect to PostgreSQL."""
SUPERVISOR_LOG = FOLDER / "supervisor.log"
DRIVER_LOGS = CHECKPOINT.parent / "_logs" / JOB

SEED = 2013
SPEED = 2_500.0
"""Records a second."""
BURST, BURST_ENDS, HELD, AGAIN = 0.09, 0.47, 0.5, 0.56
"""The shares of the records at which they are written ten times as fast, and as before; from which they are kept for
the time in which the broker is away; and from which they are written ten times as fast again."""
QUICK = 700
"""Milliseconds of a batch after which the driver waits for its next tick."""
FLYING = 0.1
"""Seconds of writing before the broker is killed, so that some records are on their way."""
AWAY = 35.0
"""Seconds that the broker is away at most; a driver gives up sooner where it plans a batch meanwhile."""


def main() -> int:
    """Run the demo; 1 where anything differs or fails, 130 where it is interrupted."""
    return run_in(FOLDER, _demo)


def _demo(console: Console) -> int:
    from tools.demo_check import read_flights

    started = time.monotonic()
    screen = Screen(console, rows=0, rows_done=lambda _: rows_read(CHECKPOINT, SOURCE))
    screen.head("1. The broker, the database, and what is written")
    empty(FOLDER)
    csv = FOLDER / "flights.csv"
    unpack(csv)
    flights = read_flights(csv)[: int(sys.argv[1]) if sys.argv[1:] else None]
    records = records_of(flights, seed=SEED)
    screen.rows = len(records)
    screen.say(f"{len(flights):,} departures of 2013 in {len(records):,} records: some late, twice or undecodable")
    with ExitStack() as ends:
        env = environment(ends.enter_context(scratch()), CHECKPOINT.parent)
        broker = ends.enter_context(_broker())
        database = ends.enter_context(running())
        env[DSN] = database.dsn()
        broker.create(TOPIC, len(AIRPORTS), **{"retention.ms": "-1"})
        screen.say(f"Kafka at {SERVERS}, topic {TOPIC}, a partition for each of {', '.join(AIRPORTS)}")
        screen.say(f"PostgreSQL at 127.0.0.1:{database.port}; the job learns its dsn from ${DSN}")
        stream = ends.enter_context(DemoStream(JOB, root=CHECKPOINT.parent, project=ROOT, env=env, log=SUPERVISOR_LOG))
        _run(screen, stream, broker, records)
        screen.head("6. The same, computed by pandas")
        problems = _compare(screen, records, database.dsn())
        if stream.failures() != 1:
            problems.append(f"the supervisor has counted {stream.failures()} failures and not 1, the killed driver")
        _say_where(screen)
    return 0 if screen.verdict(problems, time.monotonic() - started) else 1


def _run(screen: Screen, stream: DemoStream, broker: KafkaServer, records: Sequence[Record]) -> None:
    """Write and read all records, and kill the driver and the broker in between."""
    screen.head(f"2. penstock start {JOB}, under penstock supervise, until kill -9 in a burst")
    stream.until_supervised()
    stream.ask("start", JOB)
    events = stream.events()
    _follow(screen, events, lambda event: event.get("event") == "run.took_over")
    burst, over, held, again = (round(len(records) * share) for share in (BURST, BURST_ENDS, HELD, AGAIN))
    speeds = {0: SPEED, burst: 10 * SPEED, over: SPEED, again: 10 * SPEED}
    with Replay(records, topic=TOPIC, servers=SERVERS, speeds=speeds, stops=held) as replay:
        late = (burst + 3 * over) // 4
        event = _follow(screen, events, lambda event: _committed(event) and replay.written >= late)
        time.sleep(event["ms"] / 2_000)  # into the middle of the next batch
        screen.say(f"kill -9 of the driver, its JVM and its workers: {stream.kill_driver()} processes, all gone")
        screen.say(f"the log ends with {read_story(CHECKPOINT).last}")
        screen.head("3. The supervisor starts it again; the producer writes on")

        def waits_now(event: dict[str, Any]) -> bool:
            """Return whether the driver waits for a tick or for rows: it plans the next batch without the broker."""
            if not (_committed(event) and event["epoch"] > 1 and replay.written > over):
                return False
            return event["ms"] < QUICK or rows_read(CHECKPOINT, SOURCE) >= held

        _follow(screen, events, waits_now)
        took = replay.seconds(burst, over)
        times = (over - burst) / took / SPEED
        screen.say(f"the burst: {over - burst:,} records in {took:.1f} s, {times:.1f} times {SPEED:,.0f} a second")
        _lose_broker(screen, stream, broker, replay)
        screen.head("5. The broker is back; what was written meanwhile is read, then penstock drain")
        _follow(screen, events, lambda event: _committed(event) and rows_read(CHECKPOINT, SOURCE) >= len(records))
        until(lambda: replay.is_done, "the last acknowledgements")
    screen.say(f"all {replay.acknowledged:,} records are acknowledged and read")
    stream.ask("drain", JOB)
    with screen.shown():
        for event in events:
            screen.event(event)
    screen.say("drained: all windows are closed")


def _lose_broker(screen: Screen, stream: DemoStream, broker: KafkaServer, replay: Replay) -> None:
    """Kill the broker while the producer writes, and start it once the stream has paused."""
    from penstock.supervise.stream import Phase

    screen.head("4. kill -9 of the broker")
    replay.go_on()
    time.sleep(FLYING)
    broker.kill()
    killed, written = time.monotonic(), replay.written
    paused = stream.reaches(Phase.PAUSED, within=AWAY)
    screen.say("the driver has ended with 75, and the stream is PAUSED" if paused else "the driver waits for it")
    broker.start_broker()
    broker.wait()
    away = time.monotonic() - killed
    screen.say(f"it was away for {away:.0f} s; the producer wrote {replay.written - written:,} records meanwhile")


def _committed(event: dict[str, Any]) -> bool:
    return event.get("event") == "batch.committed"


def _follow(
    screen: Screen, events: Iterator[dict[str, Any]], is_last: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Show events up to the first that is waited for, and return it."""
    with screen.shown():
        for event in events:
            screen.event(event)
            if is_last(event):
                return event
    raise DemoFailed("the stream has ended before it was drained")


@contextmanager
def _broker() -> Iterator[KafkaServer]:
    """Start the broker where the job looks for it; it is gone after the block."""
    port = int(SERVERS.rpartition(":")[2])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as why:
            raise DemoFailed(f"the broker cannot listen on {SERVERS}: {why.strerror}") from why
    server = KafkaServer(FOLDER / "kafka", port=port)
    try:
        server.start()
        yield server
    except AssertionError as why:
        raise DemoFailed(str(why)) from why
    finally:
        server.end()


def _compare(screen: Screen, records: Sequence[Record], dsn: str) -> list[str]:
    """Print the counts, and return what is not as pandas says."""
    from tools.demo_kafka_check import expect, unread
    from tools.demo_kafka_compare import counts, differences, places, written_otherwise
    from tools.kafka_topic import read_topic

    topic = read_topic(SERVERS, TOPIC)
    batches = read_batches(CHECKPOINT, SOURCE)
    story = read_story(CHECKPOINT)
    expected = expect(topic, batches)
    written = places(TABLES, SERVERS, dsn)
    shown = {output: {place: read() for place, read in of.items()} for output, of in written.items()}
    problems = [*written_otherwise(records, topic), *unread(topic, batches), *differences(expected, shown)]
    problems += story.problems(len(batches), drivers=max(2, story.drivers))
    counted = {kind: story.accounting[kind] for kind in expected.accounting}
    rows = [("records written and in topic", len(topic), len(records))]
    for kind, wanted in expected.accounting.items():
        for name, n in wanted.items():
            ours = counted[kind].get(name, 0)
            if ours != n:
                problems.append(f"rows of {kind}: {ours:,} {name} and not {n:,}")
    rows += [
        ("records read", counted["source"]["read"], expected.accounting["source"]["read"]),
        ("duplicates", counted["deduplicate"]["duplicates"], expected.accounting["deduplicate"]["duplicates"]),
        ("late for deduplication", counted["deduplicate"]["late"], expected.accounting["deduplicate"]["late"]),
    ]
    screen.compare([*rows, *counts(expected, shown)])
    screen.head("7. Row accounting, from the commits")
    for line in story.sums():
        screen.say(line)
    screen.say(f"batch ids: {story.id_range}, by {story.drivers} drivers")
    return problems


def _say_where(screen: Screen) -> None:
    screen.head("8. Where it is")
    for name, path in {
        **TABLES,
        "checkpoint": CHECKPOINT,
        "drivers' logs": DRIVER_LOGS,
        "topic": FOLDER / "kafka",
    }.items():
        screen.say(f"{name:<18}{path.relative_to(ROOT)}")
    screen.head("Look at it")
    screen.say(f".venv/bin/penstock status {JOB}")
    screen.say(f".venv/bin/penstock checkpoints {JOB}")
    screen.say(".venv/bin/python -c 'from deltalake import DeltaTable;")
    screen.say(f'  print(DeltaTable("{TABLES["undecodable"].relative_to(ROOT)}").to_pandas())\'')


if __name__ == "__main__":
    sys.exit(main())
