"""One sink of a job as the driver uses it: opened once, its errors named, its schema that of the job or of the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.checkpoint.log.entries import StagedFile
from penstock.checkpoint.storage.locate import root_of
from penstock.errors import CannotTruncate, CheckpointCorrupt, SinkError, SinkRefused
from penstock.sinks import MemorySink
from penstock.sinks.base import Origin, Publication, Publisher, Sink, Target
from penstock.sinks.staged_files import stage_table
from penstock.sinks.staged_publisher import StagedPublisher

APP = "uuid/out"
SCHEMA = pa.schema([("k", pa.int64())])
NOW = Origin(job="j", time=5_000_000, watermark=4_000_000, epoch=2)


class Noting(Sink, Publisher):
    """A sink that notes what it is asked, and raises what it is told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[Publication] = []
        self.opened = 0

    def open(self, staging: Path, spark: Any) -> Noting:
        """Count."""
        self.opened += 1
        return self

    def describe(self) -> str:
        """Return its name."""
        return "noting"

    def publish(self, publication: Publication) -> None:
        """Note it, and raise."""
        self.asked.append(publication)
        if self.error is not None:
            raise self.error

    def version(self, app: str) -> int | None:
        """Return None."""
        return None


def staged(folder: Path) -> StagedFile:
    """Return a staged file of one row."""
    return StagedFile(**stage_table(pa.table({"k": [1]}, schema=SCHEMA), folder, "a.parquet"), stats={}, fails=["r"])


def test_nothing_is_published_before_it_is_open(tmp_path: Path) -> None:
    """Opened once, however often it is asked for; what its type says can be asked before."""
    sink = Noting()
    publisher = StagedPublisher("out", sink, tmp_path, None)
    assert (publisher.deduplicates, publisher.place, publisher.staging) == (False, None, tmp_path)
    with pytest.raises(AssertionError, match="before it was opened"):
        publisher.version(APP)
    assert publisher.open() is publisher.open() is publisher
    assert sink.opened == 1


def test_a_publication_names_the_files_and_their_schema(tmp_path: Path) -> None:
    """The job's where it is known; else that of the files, for jobs at rest."""
    sink, file = Noting(), staged(tmp_path)
    wider = SCHEMA.append(pa.field("more", pa.string()))
    StagedPublisher("out", sink, tmp_path, None, wider).open().publish(APP, 3, [file], NOW)
    StagedPublisher("out", sink, tmp_path, None).open().publish(APP, 4, [file], NOW)
    assert [(p.app, p.batch, p.schema, p.files[0].path, p.files[0].fails) for p in sink.asked] == [
        (APP, 3, wider, "a.parquet", ("r",)),
        (APP, 4, SCHEMA, "a.parquet", ("r",)),
    ]


def test_without_files_the_sink_is_not_asked(tmp_path: Path) -> None:
    """DESIGN 4: no rows, no commit."""
    sink = Noting()
    StagedPublisher("out", sink, tmp_path, None).open().publish(APP, 3, [], NOW)
    assert sink.asked == []


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (SinkError("by name"), SinkError),
        (ConnectionError("the JVM is gone"), ConnectionError),
        (ValueError("bug"), SinkRefused),
    ],
    ids=["a named error", "a broken connection", "anything else"],
)
def test_what_a_sink_raises_has_a_name(tmp_path: Path, raised: Exception, expected: type[Exception]) -> None:
    """Publisher.publish: errors of the SNK group as they are; all else is SinkRefused, where a Commit is published."""
    publisher, file = StagedPublisher("out", Noting(raised), tmp_path, None).open(), staged(tmp_path)
    with pytest.raises(expected, match=str(raised)):
        publisher.publish(APP, 3, [file], NOW)
    with pytest.raises(type(raised), match=str(raised)):
        publisher.show(APP, 3, [file], NOW, fingerprint=1)


def test_staged_files_are_compared_with_their_commit(tmp_path: Path) -> None:
    """`verify` reads them; a file that is gone, or another, is told."""
    publisher, file = StagedPublisher("out", Noting(), tmp_path, None), staged(tmp_path)
    publisher.verify([file])
    with pytest.raises(CheckpointCorrupt):
        publisher.verify([file.model_copy(update={"checksum": "0" * 64})])


def test_a_sink_that_takes_nothing_back_says_so(tmp_path: Path) -> None:
    """SEMANTICS 10.1: a job may have another sink of that name since."""
    publisher = StagedPublisher("out", MemorySink(), tmp_path, None).open()
    with pytest.raises(CannotTruncate, match="'out' is another than it was"):
        publisher.put_back(Target(app=APP, batch=0, slot=1), 1, slot=2, newest=3)


def test_a_sink_may_answer_with_a_plain_path(tmp_path: Path) -> None:
    """Tasks are told of a folder by its address, which a path has not."""

    class Elsewhere(MemorySink):
        def staging(self, folder: Any) -> Any:
            return Path(tmp_path) / "elsewhere"

    publisher = StagedPublisher("out", Elsewhere(), root_of(tmp_path), None)
    assert publisher.staging.address == str(tmp_path / "elsewhere")
