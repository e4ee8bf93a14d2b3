"""Files and receivers give what the suites of other systems' sources expect of them (SEMANTICS 9, issue 19).

The figures are those of Spark's FileStreamSourceSuite and InputStreamsSuite, written anew for the Harness.
"""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pushing import until

from penstock import Job, seconds
from penstock.sinks import MemorySink
from penstock.sources import Csv, Files, Parquet, Socket, Text, bytes_, files
from penstock.testing import Harness


def job_of(source: Any, predicate: str = "true") -> Job:
    """Return a job that copies what a source reads."""
    job = Job("elsewhere", interval=seconds(1), partitions=1)
    job.source("in", source).filter(predicate).write("out", MemorySink())
    return job


def write(folder: Path, **texts: str) -> None:
    """Write files a second apart, in this order."""
    folder.mkdir(exist_ok=True)
    for place, (name, text) in enumerate(texts.items()):
        (folder / name).write_text(text)
        os.utime(folder / name, (1_700_000_000 + place, 1_700_000_000 + place))


def values(made: dict[str, list[dict[str, Any]]]) -> list[Any]:
    """Return the values of the rows in order."""
    return [row["value"] for row in made["out"]]


def test_files_are_read_once_as_they_appear(tmp_path: Path) -> None:
    """API: `Files` with nothing but a format; hidden and temporary names are none, folders below are read."""
    folder = tmp_path / "in"
    folder.mkdir()
    with Harness(job_of(Files(folder, format=Text()), "value LIKE '%keep%'"), tmp_path / "root") as h:
        write(folder, a="drop1\nkeep2\nkeep3")
        assert values(h.batch()) == ["keep2", "keep3"]
        h.restart()
        write(folder, b="drop4\nkeep5\nkeep6\n", _c="keep0", d_tmp="drop7", **{".e": "keep0", "f.tmp": "keep0"})
        write(folder / "g", h="keep8")
        assert values(h.batch()) == ["keep5", "keep6", "keep8"]
        assert values(h.batch()) == []


def test_a_batch_has_so_many_files_or_bytes(tmp_path: Path) -> None:
    """API: `at_most`; two of six files a batch, and of bytes one file at least."""
    write(tmp_path / "in", **{f"f{n}": f"{n}" for n in range(1, 7)})
    by_number = Files(tmp_path / "in", format=Csv("value int"), at_most=files(2))
    with Harness(job_of(by_number), tmp_path / "number") as h:
        assert [values(h.batch()) for _ in range(4)] == [[1, 2], [3, 4], [5, 6], []]
    write(tmp_path / "sizes", a="aa", b="bb", c="cccccccc", d="dd", e="ee")
    by_size = Files(tmp_path / "sizes", format=Text(), at_most=bytes_(4))
    with Harness(job_of(by_size), tmp_path / "bytes") as h:
        assert [values(h.batch()) for _ in range(4)] == [["aa", "bb"], ["c" * 8], ["dd", "ee"], []]


def test_a_table_that_was_just_written_is_read(tmp_path: Path) -> None:
    """API: `Parquet()` takes the columns of the first file, and a pattern leaves others out."""
    pq.write_table(pa.table({"value": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"other": [3]}), tmp_path / "b.pq")
    source = Files(tmp_path, format=Parquet(), pattern="*.parquet")
    with Harness(job_of(source), tmp_path / "_root") as h:
        assert values(h.batch()) == [1, 2]


def test_lines_of_a_socket_are_read_in_order(tmp_path: Path) -> None:
    """API: `Socket(host, port)`, whose receiver connects when the driver begins."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        job = job_of(Socket("127.0.0.1", server.getsockname()[1]))
        with Harness(job, tmp_path) as h, closing(server.accept()[0]) as connection:
            read: list[str] = []
            for n in range(1, 7):
                connection.sendall(f"{n}\n".encode())
            until(lambda: read.extend(values(h.batch())) or len(read) == 6)
            assert read == ["1", "2", "3", "4", "5", "6"]
