"""A graph becomes the stages of one Spark job (DESIGN 4; decision 0002)."""

from __future__ import annotations

import pytest

from penstock import Job, agg, seconds
from penstock.errors import JobError
from penstock.graph.job import Stream
from penstock.graph.nodes import FilterNode, TransformNode
from penstock.graph.policies import OnFail
from penstock.runtime.plan.job_plan import Branch, Hop, JobPlan, Shuffle, SinkLeaf, StepLeaf, plan_job
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.windows import Tumbling

SUITE = {"name": "s", "expectations": []}


def source(job: Job, name: str = "orders") -> Stream:
    return job.source(name, MemorySource("k string, t timestamp"), event_time="t", max_out_of_order=seconds(0))


def windowed(stream: Stream, name: str = "w", late: str | None = None) -> Stream:
    spec = Tumbling(seconds(10)).late_to(late) if late else Tumbling(seconds(10)).drop_late()
    return stream.key_by("k").window(name, spec).aggregate(n=agg.count())


def ingest(plan: JobPlan) -> list[Branch]:
    return [branch for fork in plan.ingest for branch in fork.branches]


def shape(plan: JobPlan) -> list[str]:
    """Return the stages as text: what each reads, and the steps or leaves it leads to."""
    stages = [f"ingest {len(b.chain)}: " + ", ".join(map(leaf, b.leaves)) for b in ingest(plan)]
    for stage in plan.stages:
        if isinstance(stage, Hop):
            leaves = ", ".join(map(leaf, stage.branch.leaves))
            stages.append(f"hop {stage.lane} {len(stage.branch.chain)}: {leaves}")
        else:
            stages.append("shuffle " + ", ".join(w.name for w in stage.steps))
    return stages


def leaf(end: StepLeaf | SinkLeaf) -> str:
    if isinstance(end, StepLeaf):
        return f"window {end.step.name}"
    guard = f"{end.check.name} " if end.check else ""
    return guard + "+".join(s.name for s in end.sinks)


def test_a_windowed_job_is_one_branch_and_one_shuffle() -> None:
    """The sink of a window takes its rows where they appear: no further stage."""
    job = Job("a")
    windowed(source(job).filter("k is not null")).write("out", MemorySink())
    plan = plan_job(job.graph())
    assert shape(plan) == ["ingest 1: window w", "shuffle w"]
    assert [s.name for s in plan.direct["window:w"]] == ["out"]


@pytest.mark.parametrize("raw", [True, False])
def test_every_filter_is_counted_by_a_branch_that_ends_before_the_next_transform(*, raw: bool) -> None:
    """Whatever other branches the source has: the sums of SEMANTICS 2.10 name each filter."""
    job = Job("a")
    stream = source(job)
    if raw:
        stream.write("raw", MemorySink())
    changed = stream.filter("k > 'a'").transform("t", lambda df: df)
    changed.filter("k > 'b'").transform("u", lambda df: df).write("out", MemorySink())
    stream.filter("k > 'c'").transform("v", lambda df: df).write("other", MemorySink())
    plan = plan_job(job.graph())
    seen: list[str] = []
    for branch in plan.branches():
        ends = [n for n in branch.chain if isinstance(n, TransformNode)]
        behind = branch.chain[branch.chain.index(ends[-1]) + 1 :] if ends else branch.chain
        seen += [n.predicate for n in behind if isinstance(n, FilterNode)]
    assert sorted(seen) == ["k > 'a'", "k > 'b'", "k > 'c'"]
    assert [b.accounts for b in ingest(plan)].count(True) == 1


def test_a_stream_united_with_itself_leads_to_its_leaves_twice() -> None:
    """As in Spark: each row counts twice."""
    job = Job("a")
    stream = source(job).filter("k > 'a'")
    windowed(stream.union(stream)).write("out", MemorySink())
    assert shape(plan_job(job.graph())) == ["ingest 1: window w, window w", "shuffle w"]


def test_leaves_that_read_the_same_columns_share_a_branch() -> None:
    """Two windows and a sink over one stream read the source once."""
    job = Job("a")
    stream = source(job).filter("k > 'a'")
    windowed(stream, "one").write("o1", MemorySink())
    windowed(stream, "two").write("o2", MemorySink())
    stream.write("raw", MemorySink())
    assert shape(plan_job(job.graph())) == ["ingest 1: window one, window two, raw", "shuffle one, two"]


def test_branches_with_other_expressions_are_one_fork_and_one_of_them_accounts() -> None:
    """SEMANTICS 2.10: rows are counted once; what the branches have in common is computed once."""
    job = Job("a")
    stream = source(job).filter("k is not null")
    stream.filter("k = 'a'").write("a_out", MemorySink())
    stream.filter("k = 'b'").write("b_out", MemorySink())
    plan = plan_job(job.graph())
    (fork,) = plan.ingest
    assert [n.predicate for n in fork.stem if isinstance(n, FilterNode)] == ["k is not null"]
    assert [b.accounts for b in ingest(plan)] == [True, False]


def test_rows_before_a_transform_are_counted_by_a_branch_of_their_own() -> None:
    """A transform may drop rows: the sums of SEMANTICS 2.10 must hold before it."""
    job = Job("a")
    source(job).filter("k = 'a'").transform("t", lambda df: df).write("out", MemorySink())
    plan = plan_job(job.graph())
    assert shape(plan) == ["ingest 1: ", "ingest 2: out"]
    assert [len(fork.stem) for fork in plan.ingest] == [1, 2]
    assert [b.accounts for b in ingest(plan)] == [True, False]


def test_checks_and_expressions_behind_a_window_are_hops_with_lanes_of_their_own() -> None:
    """Each hop gets its own copy of the rows; none runs the state work again."""
    job = Job("a")
    out = windowed(source(job))
    out.check("q", suite=SUITE, on_fail=OnFail.WARN).write("out", MemorySink())
    out.filter("n > 1").write("big", MemorySink())
    plan = plan_job(job.graph())
    assert shape(plan) == ["ingest 0: window w", "shuffle w", "hop window:w#0 0: q out", "hop window:w#1 1: big"]
    assert plan.lanes("window:w") == ("window:w#0", "window:w#1")


def test_chained_windows_are_shuffled_in_order() -> None:
    """A step stands behind everything it reads from."""
    job = Job("a")
    first = windowed(source(job), "first")
    windowed(first.union(windowed(source(job, "other"), "side")), "second").write("out", MemorySink())
    assert shape(plan_job(job.graph())) == [
        "ingest 0: window first",
        "ingest 0: window side",
        "shuffle first, side",
        "hop window:first#0 0: window second",
        "hop window:side#0 0: window second",
        "shuffle second",
    ]


def test_a_late_stream_is_followed_once_all_its_windows_have_judged() -> None:
    """Late rows are known on the map side, before the shuffle."""
    job = Job("a")
    windowed(source(job), "w", late="late").write("out", MemorySink())
    job.late("late").filter("k is not null").write("late_out", MemorySink())
    assert shape(plan_job(job.graph())) == ["ingest 0: window w", "hop late:late#0 1: late_out", "shuffle w"]


def test_the_shuffle_has_the_partitions_of_its_largest_step() -> None:
    """DESIGN 6: P is per stateful step."""
    job = Job("a", partitions=3)
    stream = source(job)
    windowed(stream, "one").write("o1", MemorySink())
    spec = Tumbling(seconds(5)).drop_late()
    stream.key_by("k").window("two", spec, partitions=5).aggregate(n=agg.count()).write("o2", MemorySink())
    (shuffle,) = plan_job(job.graph()).stages
    assert isinstance(shuffle, Shuffle)
    assert shuffle.partitions == 5


def test_what_cannot_be_planned_is_refused_at_its_line() -> None:
    """No step behind a check, no window over a side stream, no transform behind a stateful step."""
    job = Job("a")
    checked = windowed(source(job)).check("q", suite=SUITE, on_fail=OnFail.WARN)
    checked.filter("n > 1").write("out", MemorySink())
    with pytest.raises(JobError, match="check 'q' is followed"):
        plan_job(job.graph())

    job = Job("b")
    windowed(source(job), "w", late="late").write("out", MemorySink())
    windowed(job.late("late"), "again").write("late_out", MemorySink())
    with pytest.raises(JobError, match="side stream"):
        plan_job(job.graph())

    job = Job("c")
    windowed(source(job)).transform("t", lambda df: df).write("out", MemorySink())
    with pytest.raises(JobError, match=r"transform 't'.*test_job_plan.py"):
        plan_job(job.graph())
