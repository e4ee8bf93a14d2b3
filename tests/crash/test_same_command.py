"""One command is tried twice at once, and one of the tries sleeps at any moment (F69, DESIGN 11)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from fake_engine import Witness, World, ledger_of, make_driver, quick_folder, run_to_end, windowed_job
from oracle import judge

from penstock.checkpoint.log.entries import Restore
from penstock.checkpoint.log.listener import Listener
from penstock.errors import Fenced
from penstock.runtime.restore.execute import restore
from penstock.runtime.restore.target import RestoreTarget

BACK = RestoreTarget(restore=True, batch=1)


class Told(Listener):
    """A listener that counts answers."""

    def __init__(self) -> None:
        self.answered = 0

    def on_answered(self, command: str) -> None:
        """Count."""
        assert command == "dag/run/task"
        self.answered += 1


@pytest.mark.fault("F69", "F07")
def test_a_command_that_is_tried_twice_restores_once() -> None:
    """Whichever point the one sleeps at while the other restores, runs on and leaves: one Restore, each row once."""
    ends: Counter[str] = Counter()
    asleep_at = 0
    while ends["slept to the end"] == 0:
        with quick_folder() as folder:
            world, store, listener = World(root=folder, times=[0, 3, 1, 6, 9, 2, 12, 30]), Witness(), Told()
            graph = windowed_job(world=world)

            def driver(name: str, command: str | None, listener=listener, world=world, store=store, graph=graph):
                made = make_driver(world, store, name, graph=graph, listeners=(listener,))
                made.identity = replace(made.identity, command=command)
                return made

            run_to_end(driver("first", None))
            sleeper = restore(driver("sleeper", "dag/run/task"), BACK)
            passed = sum(1 for _, _ in zip(range(asleep_at), sleeper, strict=False))
            ends["slept to the end"] += passed < asleep_at
            list(restore(driver("other", "dag/run/task"), BACK))
            run_to_end(driver("runs on", "dag/run/task"))
            try:
                list(sleeper)
                run_to_end(driver("wakes", "dag/run/task"))
                ends["woke"] += 1
            except Fenced:
                ends["fenced"] += 1
            assert [entry.command for entry in store.entries() if isinstance(entry, Restore)] == ["dag/run/task"]
            assert judge(ledger_of(world, store, graph, finished=True)) == []
            ends["answered"] += listener.answered
        asleep_at += 1
    assert min(ends["woke"], ends["fenced"], ends["answered"]) > 0
