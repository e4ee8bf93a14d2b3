"""Hashes of keys against Spark's own `xxhash64`: bit by bit, for state outlives the plan that wrote it (DESIGN 6)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.runtime.plan.branch_frame import hash_of, normalised, quoted
from penstock.state.hashing import can_hash, hash_columns, normalise

ROWS = 1_500
ODD = [-0.0, 0.0, math.nan, math.inf, -math.inf, 5e-324, 1.5]
LENGTHS = [*range(10), 15, 16, 31, 32, 33, 39, 40, 63, 64, 65, 100]
"""Bytes of a text: with and without stripes of 32, words of 8, halves of 4 and single bytes."""

KINDS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "flag": (pa.bool_(), lambda r: r.random() < 0.5),
    "byte": (pa.int8(), lambda r: r.randint(-128, 127)),
    "short": (pa.int16(), lambda r: r.randint(-(2**15), 2**15 - 1)),
    "number": (pa.int32(), lambda r: r.randint(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), lambda r: r.choice([r.randint(-(2**63), 2**63 - 1), r.randint(-3, 3)])),
    "single": (pa.float32(), lambda r: r.choice([*ODD, r.gauss(0, 1e9)])),
    "double": (pa.float64(), lambda r: r.choice([*ODD, r.gauss(0, 1e9)])),
    "text": (pa.string(), lambda r: "".join(r.choices("aZé√𝄞 \0", k=r.choice(LENGTHS)))),
    "blob": (pa.binary(), lambda r: r.randbytes(r.choice(LENGTHS))),
    "moment": (pa.timestamp("us", tz="UTC"), lambda r: r.randint(-(2**50), 2**50)),
    "local": (pa.timestamp("us"), lambda r: r.randint(-(2**50), 2**50)),
    "day": (pa.date32(), lambda r: r.randint(-9_000, 90_000)),
}
KEYS = [(), *((name,) for name in KINDS), tuple(KINDS), ("text", "long"), ("double", "text", "flag")]

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Return rows of every kind; a tenth of the values is null."""
    draw = random.Random(47)
    columns = {
        name: pa.array([None if draw.random() < 0.1 else make(draw) for _ in range(ROWS)], kind)
        for name, (kind, make) in KINDS.items()
    }
    return pa.table(columns)


@pytest.mark.sample(8)
@pytest.mark.parametrize("keys", KEYS, ids="-".join)
def test_a_hash_is_sparks(rows: pa.Table, spark: Any, tmp_path: Path, keys: tuple[str, ...]) -> None:
    """Of a key of one column, of several, where some are null, and of none."""
    pq.write_table(rows, tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet")).coalesce(1)
    from pyspark.sql import functions as F

    even = [normalised(f.name, f.dataType) if f.name in keys else None for f in frame.schema]
    made = dict(zip(frame.columns, even, strict=True))
    columns = [F.col(quoted(key)) if made[key] is None else made[key] for key in keys]
    wanted = [row[0] for row in frame.select(hash_of(columns)).collect()]
    hashes_read = hash_columns([normalise(rows[key].chunk(0)) for key in keys], ROWS)
    assert hashes_read.tolist() == wanted
    assert len(set(wanted)) > (2 if keys and keys != ("flag",) else 0)


def test_a_part_of_an_array_has_the_hashes_of_its_rows(rows: pa.Table) -> None:
    """Arrow hands on slices, whose buffers begin before them."""
    for name in KINDS:
        whole = normalise(rows[name].chunk(0))
        assert hash_columns([whole.slice(17, 200)], 200).tolist() == hash_columns([whole], ROWS).tolist()[17:217]
    assert hash_columns([pa.array([], pa.string())], 0).tolist() == []
    assert hash_columns([pa.nulls(3, pa.string())], 3).tolist() == [42, 42, 42]


@pytest.mark.parametrize(
    "kind",
    [pa.decimal128(10, 2), pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.timestamp("ms"), pa.uint8()],
    ids=str,
)
def test_other_types_are_left_to_spark(kind: pa.DataType) -> None:
    """What Spark hashes in another way is not hashed here in some way."""
    assert not can_hash(kind)
    with pytest.raises(TypeError, match="hashed by Spark alone"):
        hash_columns([pa.nulls(1, kind)], 1)


REPEATED = {
    "longs": pa.array([5, 7, 6, 5] * 10),
    "bytes at the ends": pa.array([-128, 127, -128] * 200, pa.int8()),
    "longs at the ends": pa.array([2**63 - 1, 2**63 - 2] * 3),
    "longs far apart": pa.array([-(2**63), 2**63 - 1] * 3),
    "ints, of which some are null": pa.array([1, None, 2] * 9, pa.int32()),
    "texts": pa.array(["a", None, "", "bc" * 40] * 20),
    "texts in a slice": pa.array(["a", None, "", "bc" * 40] * 20).slice(3, 50),
    "blobs": pa.array([b"a", None, b""] * 20),
    "texts, of which all differ": pa.array(list(map(str, range(99)))),
    "no texts": pa.array([], pa.string()),
}


@pytest.mark.parametrize("column", REPEATED.values(), ids=REPEATED)
def test_values_that_repeat_have_the_hashes_that_each_has_alone(column: pa.Array) -> None:
    """DESIGN 6: the distinct ones are hashed where that is cheaper, by themselves and before another column."""
    second = pa.array(range(len(column)), pa.int64())
    for columns in ([column], [column, second], [second, column]):
        alone = [hash_columns([c.slice(row, 1) for c in columns], 1)[0] for row in range(len(column))]
        assert hash_columns(columns, len(column)).tolist() == alone
