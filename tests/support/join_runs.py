"""Run a step of joins on a batch in memory, without state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.operators.join import JoinStep
from penstock.operators.protocol import TIME, StepFacts
from penstock.operators.whole_rows import WholeRows

__all__ = ["run_without_state", "step_of"]


def step_of(keys: pa.Schema) -> JoinStep:
    """Return an inner join of columns x and y, within 5 seconds."""
    sides = [WholeRows(visible=pa.schema([*keys, (name, pa.int64())]), keys=keys) for name in "xy"]
    return JoinStep(name="pairs", inputs=tuple(sides), earliest=-5_000_000, latest=5_000_000)


class NoState:
    """A partition in which nothing is held."""

    facts: Mapping[str, Any] = {}

    def rows_of(self, _part: str, _hashes: Any, _keys: Any, groups: tuple[int, int], *, schema: pa.Schema) -> Any:
        """Return no rows."""
        assert all(-(2**63) <= group < 2**63 for group in groups)
        return pa.array([], pa.int64()).to_numpy(), schema.empty_table()

    def first_group(self, *_: Any) -> None:
        """Return that there is no group."""
        return


def run_without_state(
    step: JoinStep,
    n: int,
    values: Mapping[str, Sequence[Any]] | None = None,
    watermark: int | None = None,
    times: Sequence[int] | None = None,
) -> Iterator[Any]:
    """Return what the step yields for `n` rows of one key in each input; `values` and `times` are those of the rows."""
    inputs = []
    for side, rows in enumerate(step.inputs):
        columns: dict[str, Any] = {field.name: [0] * n for field in rows.sent}
        columns |= {
            "id": ["a"] * n,
            TIME: [0] * n if times is None else times,
            "xy"[side]: (values or {}).get("xy"[side], range(n) if values is None else ["y"] * n),
            "_penstock_position": range(n),
            "_penstock_place": [side] * n,
        }
        inputs.append([pa.table(columns, schema=rows.sent)])
    facts = StepFacts(batch=0, time=0, watermark=watermark)
    return step.run(NoState(), inputs, facts)  # type: ignore[arg-type]
