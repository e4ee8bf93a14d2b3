"""Make the bytes of a file of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.sinks.encoders import Json

__all__ = ["FORMATS", "FileFormat", "JsonLinesFormat", "ParquetFormat"]


class FileFormat(Protocol):
    """How rows become a file. Subclass it."""

    name: str
    """What people are shown."""
    suffix: str
    """The end of the files' names."""

    def check(self, schema: pa.Schema) -> None:
        """Raise SinkSchemaMismatch for columns that the format cannot hold."""

    def encode(self, rows: pa.Table) -> memoryview:
        """Return the bytes of a file; raises SinkValueRefused for a value that the format cannot hold."""

    def count(self, data: bytes) -> int:
        """Return how many rows a file has, by its bytes."""

    def is_same(self, one: bytes | memoryview, other: bytes | memoryview) -> bool:
        """Return whether two files have the same rows in the same order, also of two versions of a library."""


@dataclass(frozen=True)
class ParquetFormat(FileFormat):
    """Parquet, compressed by snappy."""

    name = "Parquet"
    suffix = "parquet"

    def check(self, schema: pa.Schema) -> None:
        """Take all columns: staged files are Parquet too."""

    def encode(self, rows: pa.Table) -> memoryview:
        """Return the file."""
        buffer = pa.BufferOutputStream()
        pq.write_table(rows, buffer, compression="snappy")
        return memoryview(buffer.getvalue())

    def count(self, data: bytes) -> int:
        """Return what the end of the file says."""
        rows: int = pq.read_metadata(pa.BufferReader(data)).num_rows
        return rows

    def is_same(self, one: bytes | memoryview, other: bytes | memoryview) -> bool:
        """Compare tables, where the bytes differ; a file that is none has other rows."""
        try:
            return one == other or pq.read_table(pa.BufferReader(one)).equals(pq.read_table(pa.BufferReader(other)))
        except pa.ArrowInvalid:
            return False


@dataclass(frozen=True)
class JsonLinesFormat(FileFormat):
    """A JSON object and a line feed for each row."""

    name = "JSON lines"
    suffix = "jsonl"
    encoder: Json = field(default_factory=Json)

    def check(self, schema: pa.Schema) -> None:
        """Refuse types that JSON cannot hold."""
        self.encoder.check(schema)

    def encode(self, rows: pa.Table) -> memoryview:
        """Return the file."""
        texts = self.encoder.encode(rows).cast(pa.large_string())
        nothing, end_of_line = (pa.scalar(text, pa.large_string()) for text in ("", "\n"))
        lines = pc.binary_join_element_wise(texts, nothing, end_of_line)
        # The texts lie one after the other in the buffer: it is the file.
        offsets = lines.offset, lines.offset + len(lines)
        starts = pa.Array.from_buffers(pa.int64(), offsets[1] + 1, [None, lines.buffers()[1]])
        start, end = starts[offsets[0]].as_py(), starts[offsets[1]].as_py()
        return memoryview(lines.buffers()[2])[start:end]

    def count(self, data: bytes) -> int:
        """Return how many lines the file has."""
        return data.count(b"\n")

    def is_same(self, one: bytes | memoryview, other: bytes | memoryview) -> bool:
        """Compare bytes: no library decides about them."""
        return one == other


FORMATS: Mapping[str, FileFormat] = {form.name: form for form in (ParquetFormat(), JsonLinesFormat())}
"""The formats by their names."""
