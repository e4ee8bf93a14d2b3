"""How long chains get and how many bytes are rewritten over a thousand batches, whatever their sizes (DESIGN 6)."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from state_simulation import Simulation

from penstock.state.compaction_planner import budget

KIB, MIB, GIB = 2**10, 2**20, 2**30
BATCHES = 1_000
_random = random.Random(1)

PATTERNS = {
    "the same keys each batch": (None, [50 * MIB] * BATCHES, 50 * MIB),
    "one key for ever": (None, [2 * KIB] * BATCHES, 2 * KIB),
    "new keys, 1 KiB a batch": (None, [KIB] * BATCHES, None),
    "new keys, 64 KiB a batch": (None, [64 * KIB] * BATCHES, None),
    "500 KiB touched of 250 MiB": (250 * MIB, [500 * KIB] * BATCHES, 250 * MIB),
    "huge, then tiny": (GIB, [2 * KIB] * BATCHES, None),
    "halving, then tiny": (None, [max(2 * KIB, int(2 * GIB * 0.5**n)) for n in range(BATCHES)], None),
    "growing by a percent": (None, [int(2 * KIB * 1.01 ** min(n, 900)) for n in range(900)], None),
}
STARVED = {
    "new keys, 1 MiB a batch": (None, [MIB] * BATCHES, None),
    "new keys, 16 MiB a batch": (None, [16 * MIB] * 600, None),
    "5 MiB touched of 2 GiB": (2 * GIB, [5 * MIB] * BATCHES, 2 * GIB),
    "tiny and large by turns": (None, [64 * MIB if n % 2 else 2 * KIB for n in range(300)], None),
    "any sizes": (None, [int(math.exp(_random.gauss(11, 3))) + 1_500 for _ in range(BATCHES)], None),
}


def simulated(pattern, slack=MIB):
    """Run a pattern: the size of the first batch if it differs, the sizes of the others, the bytes of all keys."""
    first, sizes, keys = pattern
    simulation = Simulation(keys=keys, slack=slack)
    for size in itertools.chain([] if first is None else [first], sizes):
        simulation.write(size)
    return simulation


@pytest.mark.parametrize("pattern", PATTERNS)
def test_chains_stay_about_twenty_long_within_the_budget_of_every_batch(pattern):
    """Where four times the bytes written and 1 MiB are enough to merge each row as often as its size classes ask."""
    simulation = simulated(PATTERNS[pattern])
    assert simulation.over_budget == 0
    assert simulation.longest <= 22
    assert sum(simulation.lengths) / len(simulation.lengths) <= 16


@pytest.mark.parametrize("pattern", STARVED)
def test_where_the_budget_is_too_small_for_twenty_runs_it_is_kept_and_the_chain_is_longer(pattern):
    """Rewriting each row log4(state / batch) times costs more than 4 times the bytes written; see the page."""
    simulation = simulated(STARVED[pattern])
    assert simulation.over_budget == 0
    assert simulation.longest <= 40
    assert sum(simulation.lengths) / len(simulation.lengths) <= 20


def test_without_slack_the_same_holds_in_proportion():
    """Small batches then are like large ones: what counts is how many batches' bytes the state has."""
    simulation = simulated(PATTERNS["new keys, 1 KiB a batch"], slack=0)
    assert simulation.over_budget == 0
    assert simulation.longest <= 30


def test_the_pieces_of_a_run_are_as_large_as_the_budget_allows():
    """A long merge does not end in thousands of pieces, which every manifest would have to name."""
    simulation = simulated(PATTERNS["500 KiB touched of 250 MiB"])
    assert simulation.most_pieces < 4 * 250 * MIB // budget(500 * KIB)


@settings(max_examples=examples(24))
@given(
    st.lists(st.sampled_from([1_500, 20_000, 300_000, 5_000_000, 400_000_000]), max_size=80),
    st.sampled_from([0, 5_000, MIB]),
    st.sampled_from([None, 10**6, 10**9]),
)
def test_no_batch_goes_over_its_budget(sizes, slack, keys):
    """For any sizes in any order."""
    simulation = Simulation(keys=keys, slack=slack)
    for size in sizes:
        simulation.write(size)
        assert simulation.over_budget == 0
