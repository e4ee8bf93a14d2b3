"""The contract of sinks as tests (sinks/base.py; SEMANTICS 9.4, 10.1), for pytest and hypothesis.

A sink of your own: subclass `RepeatingContract` or `DeduplicatingContract` in its test module, and `CreatingContract`,
`ReadableContract` and `TruncatableContract` for what else it can do.
Give the fixtures `world` and `another`, as docs/testing.md shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.locate import root_of
from penstock.errors import CannotTruncate, PenstockError, SinkAhead, SinkSchemaMismatch
from penstock.sinks.base import (
    CreatingSink,
    MaintainedSink,
    Publication,
    Publisher,
    ReadableSink,
    SchemaCheckingSink,
    Sink,
    Staged,
    Target,
    TruncatableSink,
)
from penstock.sinks.staged_files import stage_table
from penstock.testing.examples import examples

__all__ = [
    "APP",
    "OTHER",
    "OTHER_SCHEMA",
    "QUARANTINE_SCHEMA",
    "SCHEMA",
    "CreatingContract",
    "DeduplicatingContract",
    "ReadableContract",
    "RepeatingContract",
    "SinkContract",
    "TruncatableContract",
    "World",
]

SCHEMA = pa.schema([("k", pa.int64())])
"""The rows that the suite writes."""
OTHER_SCHEMA = pa.schema([("k", pa.string())])
"""Rows that fit no target with those."""
QUARANTINE_SCHEMA = pa.schema([*SCHEMA, ("_batch", pa.int64())])
"""Rows of a quarantine, which say in which batch they went there."""
APP, OTHER = "uuid/out", "uuid/other"


@dataclass
class World:
    """A sink, a folder of its own for what a test needs, and what the sink shows."""

    sink: Any
    folder: Path
    show: Callable[[], list[int]]
    """Returns the rows that the sink shows, in any order."""
    names: int = field(default=0)

    @property
    def staging(self) -> CheckpointFolder:
        """Return the sink's staging folder."""
        return root_of(self.sink.staging(root_of(self.folder) / "staged"))

    def publisher(self) -> Publisher:
        """Return the publisher of another run."""
        publisher: Publisher = self.sink.open(self.staging, None)
        return publisher

    def stage(self, *ks: int) -> Staged:
        """Return a staged file of rows."""
        self.names += 1
        name = f"{self.names:04d}.parquet"
        return Staged(**stage_table(pa.table({"k": list(ks)}, schema=SCHEMA), self.staging, name))

    def publication(self, batch: int, *files: Staged, app: str = APP) -> Publication:
        """Return what the driver asks for."""
        return Publication(app=app, batch=batch, files=files, schema=SCHEMA)

    def shown(self) -> list[int]:
        """Return the rows that the sink shows, sorted."""
        return sorted(self.show())


class SinkContract:
    """The suite for every sink; subclasses say which."""

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        """Return the sink to look at; its target is not there yet."""
        raise AssertionError("a subclass gives this")

    @pytest.fixture
    def made(self, world: World) -> World:
        """Return the sink after what the driver does at its start."""
        if isinstance(world.sink, CreatingSink):
            world.sink.create(SCHEMA, None)
        return world

    def test_what_it_can_do_is_said_by_its_type(self, world: World) -> None:
        """sinks/base.py: nothing is opened to learn it, and no method is looked for by its name."""
        assert Sink in type(world.sink).__mro__
        assert isinstance(world.sink.deduplicates, bool)
        assert isinstance(world.sink.in_order, bool)
        abilities: dict[type, set[str]] = {
            SchemaCheckingSink: {"check"},
            CreatingSink: {"create"},
            ReadableSink: {"read_batches"},
            MaintainedSink: {"maintain"},
            TruncatableSink: {"find_version", "truncated", "put_back"},
        }
        for base, methods in abilities.items():
            assert isinstance(world.sink, base) or not methods & set(dir(world.sink)), base

    def test_to_describe_and_to_open_it_touches_nothing(self, world: World, tmp_path: Path) -> None:
        """`explain` of a job, and a driver that does not own the log yet."""
        before = sorted(tmp_path.rglob("*"))
        assert world.sink.describe().count("\n") == 0
        assert world.sink.place() == world.sink.place()
        world.publisher()
        assert sorted(tmp_path.rglob("*")) == before

    def test_rows_are_shown_after_publishing_and_not_before(self, made: World) -> None:
        """DESIGN 4: staged rows are nobody's."""
        publisher, file = made.publisher(), made.stage(1, 2)
        assert made.shown() == []
        publisher.publish(made.publication(0, file, made.stage(3)))
        assert made.shown() == [1, 2, 3]

    def test_staged_files_stay(self, made: World) -> None:
        """Publisher.publish: a Commit names them, and the batch may be published again."""
        files = [made.stage(1, 2), made.stage(3)]
        before = {file.path: (made.staging / file.path).read() for file in files}
        made.publisher().publish(made.publication(0, *files))
        assert [file.path for file in files if (made.staging / file.path).size() is None] == []
        assert {file.path: (made.staging / file.path).read() for file in files} == before

    def test_without_files_nothing_is_shown(self, made: World) -> None:
        """DESIGN 4: no rows, no commit."""
        publisher = made.publisher()
        publisher.publish(made.publication(0))
        assert (publisher.version(APP), made.shown()) == (None, [])

    def test_a_publication_that_fails_shows_all_or_nothing(self, made: World) -> None:
        """Publisher.publish: a file is gone, and another run publishes the whole batch."""
        here, gone = made.stage(1, 2), made.stage(3)
        held = (made.staging / gone.path).read()
        (made.staging / gone.path).remove()
        publisher = made.publisher()
        try:
            publisher.publish(made.publication(0, here, gone))
            failed = False
        except (OSError, PenstockError):
            failed = True
        (made.staging / gone.path).stage(memoryview(held))
        if failed:
            assert made.shown() == []
            made.publisher().publish(made.publication(0, here, gone))
        assert made.shown() == [1, 2, 3]

    def test_all_rows_that_fit_are_taken(self, made: World) -> None:
        """Publisher.refuse_values: the driver asks before the Commit, and nothing is shown."""
        made.publisher().refuse_values([made.stage(1)])
        assert made.shown() == []


class RepeatingContract(SinkContract):
    """The suite for sinks that cannot tell what they show."""

    def test_a_batch_is_shown_again_and_no_version_is_told(self, made: World) -> None:
        """SEMANTICS 9.4: at least once."""
        assert not made.sink.deduplicates
        publisher, publication = made.publisher(), made.publication(0, made.stage(1, 2))
        for _ in range(2):
            publisher.publish(publication)
        assert made.shown() == [1, 1, 2, 2]
        assert publisher.version(APP) is None


class DeduplicatingContract(SinkContract):
    """The suite for sinks that show a batch once."""

    def test_it_says_that_it_deduplicates(self, world: World) -> None:
        """The guarantee of a path is derived from this."""
        assert world.sink.deduplicates

    def test_a_batch_is_shown_once_however_often_it_is_published(self, made: World) -> None:
        """SEMANTICS 9.4: by the same publisher, and by that of another run."""
        publisher, publication = made.publisher(), made.publication(4, made.stage(1, 2))
        for each in (publisher, publisher, made.publisher()):
            each.publish(publication)
        assert made.shown() == [1, 2]
        assert publisher.version(APP) == 4

    def test_no_files_no_version(self, made: World) -> None:
        """DESIGN 4: no rows, no commit."""
        publisher = made.publisher()
        publisher.publish(made.publication(0))
        assert publisher.version(APP) is None
        publisher.publish(made.publication(1, made.stage(1)))
        publisher.publish(made.publication(2))
        assert (publisher.version(APP), made.shown()) == (1, [1])

    def test_batches_may_be_left_out_and_apps_do_not_meet(self, made: World) -> None:
        """SEMANTICS 9.4: the version is by app, so that two jobs, or two checkpoints of one job, share a sink."""
        publisher = made.publisher()
        for batch, app in ((3, APP), (1, OTHER), (7, APP), (2, OTHER)):
            publisher.publish(made.publication(batch, made.stage(batch), app=app))
        assert made.shown() == [1, 2, 3, 7]
        assert (publisher.version(APP), publisher.version(OTHER), publisher.version("nobody")) == (7, 2, None)
        assert made.publisher().version(APP) == 7

    def test_a_batch_behind_the_sink_is_refused(self, made: World) -> None:
        """F31: a checkpoint is older than the sink. The error has both numbers, and nothing is shown."""
        made.publisher().publish(made.publication(7, made.stage(7)))
        with pytest.raises(SinkAhead, match=r"7.*6") as caught:
            made.publisher().publish(made.publication(6, made.stage(6)))
        assert (caught.value.fields, caught.value.exit_code) == ({"seen": 7, "batch": 6}, 78)
        assert made.shown() == [7]

    def test_another_run_goes_on(self, made: World) -> None:
        """A restart publishes what the former run left."""
        files: Sequence[Staged] = [made.stage(n) for n in range(4)]
        for batch, file in enumerate(files):
            made.publisher().publish(made.publication(batch, file))
        assert made.shown() == [0, 1, 2, 3]

    def test_any_run_of_publications_shows_each_batch_once(
        self, tmp_path_factory: pytest.TempPathFactory, another: Callable[[Path], World]
    ) -> None:
        """SEMANTICS 9.4 as a law: rising batches, each tried some times, by publishers that live or die in between."""
        tries = st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=5)

        @settings(max_examples=examples(5), deadline=None)
        @given(tries)
        def law(plan: list[tuple[int, bool]]) -> None:
            world = another(tmp_path_factory.mktemp("sink"))
            if isinstance(world.sink, CreatingSink):
                world.sink.create(SCHEMA, None)
            publisher = world.publisher()
            for batch, (times, dies) in enumerate(plan):
                publication = world.publication(batch, world.stage(batch))
                for _ in range(times):
                    publisher = world.publisher() if dies else publisher
                    publisher.publish(publication)
                assert publisher.version(APP) == batch
            assert world.shown() == list(range(len(plan)))

        law()


class CreatingContract(SinkContract):
    """The suite for sinks that make their target, and check what fits it."""

    def test_it_is_made_once_and_left_alone(self, world: World) -> None:
        """CreatingSink.create: at each start, and by two jobs at a time."""
        for _ in range(2):
            world.sink.create(SCHEMA, None)
        world.publisher().publish(world.publication(0, world.stage(1)))
        world.sink.create(SCHEMA, None)
        assert world.shown() == [1]

    def test_to_check_makes_nothing(self, world: World, tmp_path: Path) -> None:
        """SchemaCheckingSink.check: `diff` asks it, and a driver that does not own the log."""
        before = sorted(tmp_path.rglob("*"))
        world.sink.check(SCHEMA)
        world.sink.ready(None)
        assert sorted(tmp_path.rglob("*")) == before

    def test_rows_that_do_not_fit_are_told_before_anything_is_written(self, made: World, tmp_path: Path) -> None:
        """By `check`, and by `create`, which a start with damage asks alone."""
        made.publisher().publish(made.publication(0, made.stage(1)))
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(SinkSchemaMismatch):
            made.sink.check(OTHER_SCHEMA)
        with pytest.raises(SinkSchemaMismatch):
            made.sink.create(OTHER_SCHEMA, None)
        assert (sorted(tmp_path.rglob("*")), made.shown()) == (before, [1])


class ReadableContract(SinkContract):
    """The suite for sinks that give back the rows of a quarantine, so that these are sent through again."""

    @pytest.fixture
    def quarantine(self, world: World) -> World:
        """Return the sink with a row in each of the batches 3, 4 and 7, and a second one in 4; `k` is 10 times it."""
        if isinstance(world.sink, CreatingSink):
            world.sink.create(QUARANTINE_SCHEMA, None)
        for batch, ks in ((3, [30]), (4, [40, 41]), (7, [70])):
            world.names += 1
            rows = pa.table({"k": ks, "_batch": [batch] * len(ks)}, schema=QUARANTINE_SCHEMA)
            file = Staged(**stage_table(rows, world.staging, f"{world.names:04d}.parquet"))
            publication = Publication(app=APP, batch=batch, files=(file,), schema=QUARANTINE_SCHEMA)
            world.publisher().publish(publication)
            if world.sink.deduplicates:
                world.publisher().publish(publication)
        return world

    @pytest.mark.parametrize(
        ("batches", "ks"),
        [
            (range(3, 8), [30, 40, 41, 70]),
            (range(4, 7), [40, 41]),
            (range(5, 7), []),
            (range(3), []),
            (range(7, 100), [70]),
        ],
        ids=str,
    )
    def test_rows_of_a_range_of_batches_are_read(self, quarantine: World, batches: range, ks: list[int]) -> None:
        """ReadableSink.read_batches: by `_batch`, without the end. A sink that deduplicates has each row once."""
        rows = quarantine.sink.read_batches(batches)
        assert sorted(rows["k"].to_pylist()) == ks
        assert {name: rows.schema.field(name).type for name in QUARANTINE_SCHEMA.names} == dict(
            zip(QUARANTINE_SCHEMA.names, QUARANTINE_SCHEMA.types, strict=True)
        )
        assert all(batch in batches for batch in rows["_batch"].to_pylist())

    def test_columns_that_are_asked_for_are_read(self, quarantine: World) -> None:
        """ReadableSink.read_batches: those alone, in that order, also where nothing is found."""
        for batches in (range(3, 8), range(3)):
            for columns in (["k"], ["_batch", "k"]):
                assert quarantine.sink.read_batches(batches, columns).column_names == columns

    def test_to_read_changes_nothing(self, quarantine: World, tmp_path: Path) -> None:
        """It is asked for between batches, however often."""
        before = (quarantine.shown(), sorted(tmp_path.rglob("*")))
        for _ in range(2):
            quarantine.sink.read_batches(range(100))
        assert (quarantine.shown(), sorted(tmp_path.rglob("*"))) == before


class TruncatableContract(DeduplicatingContract):
    """The suite for sinks that take back what they have published (SEMANTICS 10.1)."""

    def publish(self, world: World, *batches: int) -> None:
        """Publish batches of one row each."""
        for batch in batches:
            world.publisher().publish(world.publication(batch, world.stage(batch)))

    def test_it_shows_a_batch_again_once_for_a_restore(self, made: World) -> None:
        """TruncatableSink.put_back: a second time changes nothing, and batches of the app are not forgotten."""
        self.publish(made, 0, 1, 2)
        target = Target(app=APP, batch=0, slot=3)
        version = made.sink.find_version(target)
        assert made.sink.truncated(APP) is None
        assert made.sink.put_back(target, version, slot=20, newest=2)
        assert made.shown() == [0]
        assert not made.sink.put_back(target, version, slot=20, newest=2)
        assert (made.sink.truncated(APP), made.shown(), made.publisher().version(APP)) == (20, [0], 2)
        self.publish(made, 3)
        assert made.shown() == [0, 3]

    def test_to_look_for_the_version_changes_nothing(self, made: World) -> None:
        """TruncatableSink.find_version: the dry run of a restore asks it. None means that the target is in force."""
        self.publish(made, 0, 1)
        for batch in (1, 0, None):
            made.sink.find_version(Target(app=APP, batch=batch, slot=3))
        assert made.sink.find_version(Target(app=APP, batch=1, slot=3)) is None
        assert made.shown() == [0, 1]

    def test_rows_of_others_are_never_taken_back(self, made: World) -> None:
        """TruncatableSink: somebody else has rows since then, which raises before the Restore and after it."""
        self.publish(made, 0, 1)
        target = Target(app=APP, batch=0, slot=3)
        version = made.sink.find_version(target)
        made.publisher().publish(made.publication(5, made.stage(9), app=OTHER))
        with pytest.raises(CannotTruncate):
            made.sink.find_version(target)
        with pytest.raises(CannotTruncate):
            made.sink.put_back(target, version, slot=20, newest=1)
        assert made.shown() == [0, 1, 9]

    def test_a_sink_that_is_not_there_has_nothing_to_take_back(self, world: World) -> None:
        """Before its first batch."""
        assert world.sink.find_version(Target(app=APP, batch=None, slot=-1)) is None
        assert world.sink.truncated(APP) is None
