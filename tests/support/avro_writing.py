"""Write records of Avro as other writers do: by fastavro, bare or behind the header of a registry's schema."""

from __future__ import annotations

import io
from typing import Any

from fastavro import parse_schema, schemaless_writer

__all__ = ["encoded", "record"]


def record(*fields: tuple[Any, ...], name: str = "Order", **more: Any) -> dict[str, Any]:
    """Return the schema of a record with fields, each a name, a type, and perhaps a default."""
    made = [{"name": f[0], "type": f[1]} | ({"default": f[2]} if len(f) > 2 else {}) for f in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def encoded(schema: Any, row: Any, number: int | None = None) -> bytes:
    """Return the bytes of a row; with the `number` of a registry's schema behind its header."""
    out = io.BytesIO() if number is None else io.BytesIO(b"\0" + number.to_bytes(4, "big"))
    out.seek(0, io.SEEK_END)
    schemaless_writer(out, parse_schema(schema), row)
    return out.getvalue()
