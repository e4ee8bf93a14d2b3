"""Bound the state of a step and of one key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from penstock.errors import StateRowTooLarge, StateTooLarge
from penstock.state.row_layout import DELETED

__all__ = ["check_rows", "check_sizes"]


def check_sizes(sizes: Mapping[str, int], caps: Mapping[str, int]) -> None:
    """Raise `StateTooLarge` for the first step whose state has more bytes than its cap (F60)."""
    for step, cap in caps.items():
        if (size := sizes.get(step, 0)) > cap:
            raise StateTooLarge(f"the state of step {step!r} has {size:,} bytes, above its cap of {cap:,}")


def check_rows(table: pa.Table, keys: Iterable[str], *, step: str, part: str, cap: int | None) -> None:
    """Raise StateRowTooLarge, naming the key, where one row has more bytes than a cap; None is no cap.

    A table of fewer bytes needs no look at its rows; a larger one is halved until the pieces are small enough.
    """
    if cap is None or table.nbytes <= cap:
        return
    if table.num_rows > 1:
        middle = table.num_rows // 2
        for half in (table.slice(0, middle), table.slice(middle)):
            check_rows(half, keys, step=step, part=part, cap=cap)
        return
    if DELETED in table.column_names and table[DELETED][0].as_py():
        return  # what is forgotten may be of any size
    key = {name: table[name][0].as_py() for name in keys}
    raise StateRowTooLarge(
        f"step {step!r} keeps {table.nbytes:,} bytes in {part!r} for the key {key}, above the cap of {cap:,}"
    )
