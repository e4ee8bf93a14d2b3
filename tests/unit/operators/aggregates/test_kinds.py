"""The aggregates of one cell, as checkpoints know them (decisions 5 and 204)."""

from __future__ import annotations

from penstock.graph.aggregates import AggregateKind
from penstock.operators.aggregates.kinds import ONE_CELL


def test_partials_keep_their_names() -> None:
    """3.3: a checkpoint finds partials by these, and another name begins without the rows before."""
    names = {kind: of.part for kind, of in ONE_CELL.items()}
    assert (
        names.items()
        >= {
            AggregateKind.MIN: "min",
            AggregateKind.MAX: "max",
            AggregateKind.COUNT_DISTINCT: "tally",
            AggregateKind.APPROX_COUNT_DISTINCT: "hashes",
        }.items()
    )


def test_only_what_has_an_exact_inverse_is_subtracted() -> None:
    """3.3: the least of what is left does not follow from the least of all, and a sketch forgets."""
    assert ONE_CELL[AggregateKind.COUNT_DISTINCT].exact_inverse
    without = (AggregateKind.MIN, AggregateKind.MAX, AggregateKind.APPROX_COUNT_DISTINCT)
    assert not any(ONE_CELL[kind].exact_inverse for kind in without)
