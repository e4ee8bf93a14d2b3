"""Check what every format promises of whatever records hold (SEMANTICS 9.3)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.sources.formats.base import Format

__all__ = ["decoded_as_if_alone"]


def decoded_as_if_alone(form: Format, records: Sequence[bytes | None], schema: pa.Schema) -> None:
    """Assert that each record becomes the same row, or the same error, beside others as alone, and that none raises."""
    whole = form.decode(records, schema)
    assert whole.rows.num_rows == len(records)
    assert whole.rows.schema == schema
    whole.rows.validate(full=True)
    errors = [None] * len(records) if whole.errors is None else whole.errors.to_pylist()
    assert whole.errors is None or any(errors), "None says that all could be decoded"
    for i, record in enumerate(records):
        alone = form.decode([record], schema)
        assert repr(_plain(whole.rows, i)) == repr(_plain(alone.rows, 0)), record
        assert errors[i] == (None if alone.errors is None else alone.errors[0].as_py()), record
        assert errors[i] is None or not any(column[i].is_valid for column in whole.rows.columns), record


def _plain(rows: pa.Table, i: int) -> list[object]:
    """Return the values of a row; as texts, because Python has no times beyond the year 9999."""
    return [str(column.slice(i, 1).combine_chunks()) for column in rows.columns]
