"""Tasks compute expressions again after a batch that they have left to Spark, and not in each batch (decision 192)."""

from __future__ import annotations

import itertools

from penstock.runtime.spark.expression_turns import ExpressionTurns


def turns_of(turns: ExpressionTurns, unfit: set[int], batches: int) -> list[int]:
    """Return the batches that tasks try, where they find no value in some."""
    tried = []
    for batch in range(batches):
        if turns.in_tasks:
            tried.append(batch)
            if batch in unfit:
                turns.left()
        turns.done()
    return tried


def test_one_batch_leaves_sixteen_more_to_spark() -> None:
    """And then tasks compute all batches."""
    assert turns_of(ExpressionTurns(able=True), {5}, 40) == [*range(6), *range(22, 40)]


def test_a_job_whose_tasks_never_find_a_value_tries_ever_less() -> None:
    """Of 10,000 batches a few are computed twice, and the longest pause is 1,024 batches."""
    tried = turns_of(ExpressionTurns(able=True), {*range(10_000)}, 10_000)
    pauses = [later - earlier - 1 for earlier, later in itertools.pairwise(tried)]
    assert pauses[:8] == [16, 32, 64, 128, 256, 512, 1_024, 1_024]
    assert len(tried) == 15


def test_batches_that_tasks_compute_make_the_next_pause_short_again() -> None:
    """As many as the pause would have been."""
    turns = ExpressionTurns(able=True)
    turns_of(turns, {0}, 17 + 32)
    assert turns_of(turns, {0}, 18) == [0, 17]


def test_tasks_that_are_not_able_compute_nothing() -> None:
    """As where Spark is not in ANSI mode."""
    assert turns_of(ExpressionTurns(able=False), set(), 50) == []
