"""`--sample`: what a run tries of the tests marked sample (decision 88)."""

from __future__ import annotations

import pytest
from draw import LONG_SECONDS, LONGEST, Marked, left_out

CASES = [Marked(f"test_a.py::test_x[{case}]", 2) for case in "abcdef"]
GROUP = [Marked(f"test_{file}.py::test_y", 2, "commands") for file in "abcde"]


LONG = [
    Marked(f"test_{file}.py::test_z", seconds=seconds)
    for file, seconds in zip("abcdefg", (LONG_SECONDS + 50, 120, 90, 90, 60, 45, 30), strict=True)
]


def kept(marked: list[Marked], seed: int) -> list[str]:
    """Return what a run tries."""
    gone = left_out(marked, seed)
    return [mark.test for mark in marked if mark.test not in gone]


def test_so_many_cases_of_a_test_and_so_many_tests_of_a_group_are_tried():
    """Each by itself."""
    assert [len(kept(marked, 1)) for marked in (CASES, GROUP, CASES + GROUP)] == [2, 2, 4]
    assert kept(CASES[:2], 1) == ["test_a.py::test_x[a]", "test_a.py::test_x[b]"]


@pytest.mark.parametrize("marked", [CASES, GROUP, LONG], ids=["cases", "group", "long"])
def test_a_seed_draws_the_same_again_and_seeds_draw_all_in_time(marked):
    """Whatever the order of the tests, which each worker of a run has shuffled."""
    assert kept(marked, 7) == sorted(kept(marked[::-1], 7))
    assert {test for seed in range(40) for test in kept(marked, seed)} == {mark.test for mark in marked}


def test_tests_with_the_same_cases_keep_the_same_ones():
    """What a fixture has made for a case serves all of them."""
    other = [Marked(case.test.replace("test_x", "test_z"), 2) for case in CASES]
    assert [test.partition("[")[2] for test in kept(CASES, 3)] == [test.partition("[")[2] for test in kept(other, 3)]


def test_a_group_is_drawn_from_the_cases_that_were_drawn():
    """A test with many cases does not crowd out the others of its module."""
    both = [*CASES, *(Marked(mark.test, 3, "module") for mark in CASES), Marked("test_a.py::test_y", 3, "module")]
    tried = {mark.test for mark in both} - left_out(both, 5)
    assert tried == {*kept(CASES, 5), "test_a.py::test_y"}


def test_one_group_has_one_number():
    """Two would be two groups, and twice the tests."""
    with pytest.raises(ValueError, match="tests of commands are marked sample with different numbers"):
        left_out([*GROUP, Marked("test_f.py::test_y", 3, "commands")], 1)


def test_long_tests_fill_a_time_and_pass_it_never():
    """What is drawn takes no longer than a run may; nothing that would have fitted is left out."""
    for seed in range(40):
        tried = kept(LONG, seed)
        left = LONG_SECONDS - sum(mark.seconds for mark in LONG if mark.test in tried)
        rest = min(mark.seconds for mark in LONG if mark.test not in tried)
        assert 0 <= left < rest or tried == [LONG[0].test]


def test_a_test_that_is_longer_than_that_time_is_tried_alone_and_seldom():
    """No oftener than any other is drawn first."""
    alone = [kept(LONG, seed) for seed in range(400) if LONG[0].test in kept(LONG, seed)]
    assert alone == [[LONG[0].test]] * len(alone)
    assert 0 < len(alone) < 400 / len(LONG) * 2


def test_a_test_that_is_too_long_for_any_run_is_refused():
    """It would be most of the run."""
    with pytest.raises(ValueError, match=f"test_b takes {LONGEST + 1} s, and a long test may take {LONGEST}"):
        left_out([Marked("test_b", seconds=LONGEST + 1)], 1)
