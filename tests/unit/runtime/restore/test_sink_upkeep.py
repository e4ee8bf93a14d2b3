"""What a log needs of a sink: files that Commits name, and the batches that a restore may go back to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from fake_engine import Witness, World, quick_folder
from test_damage import CUTS, TIMES, Site, start

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.runtime.restore.sink_upkeep import maintain_sinks, needed_of
from penstock.sinks import MemorySink
from penstock.sinks.base import MaintainedSink, Needed, Upkeep


@pytest.fixture
def site() -> Iterator[Site]:
    """Return a checkpoint that a driver left behind after a few batches."""
    with quick_folder() as folder:
        made = Site(World(root=folder, times=TIMES), Witness())
        start(made.world, made.store, "first", CUTS["Release at the end"])
        yield made


def test_it_needs_the_files_and_the_batches_of_all_kept_commits(site: Site) -> None:
    """And of no other sink, app or batch; saved ones count with them."""
    recovered = recover(Log(site.store))
    sink = min(name for commit in recovered.kept for name in commit.staged)
    needed = needed_of(sink, recovered, "uuid")
    named = {
        file.path for commit in recovered.kept for file in (*commit.staged.get(sink, ()), *commit.held.get(sink, ()))
    }
    assert needed.staged == named
    assert named
    assert [target.batch for target in needed.targets] == [commit.batch for commit in recovered.kept]
    assert {target.app for target in needed.targets} == {f"uuid/{sink}"}
    assert needed_of("another", recovered, "uuid").staged == frozenset()


@dataclass
class Kept(MaintainedSink):
    """A sink that notes what it is asked for."""

    asked: list[Any] = field(default_factory=list)

    def maintain(self, needed: Needed, *, now: float) -> Upkeep:
        self.asked.append((needed.targets[0].app, now))
        return Upkeep(joined=2, made=1)


def test_only_sinks_that_can_be_maintained_are(site: Site) -> None:
    """By their type; the others are passed over."""
    graph = type("Graph", (), {})()
    kept = Kept()
    graph.sinks = [type("Node", (), {"name": n, "sink": s})() for n, s in (("a", kept), ("b", MemorySink()))]
    done = dict(maintain_sinks(graph, recover(Log(site.store)), "uuid", now=5.0))
    assert (done, kept.asked) == ({"a": Upkeep(joined=2, made=1)}, [("uuid/a", 5.0)])
