"""A limit of rows a second below the least rate is refused where both are set and cannot hold (decision 106)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock import Job
from penstock.config.settings import load_settings
from penstock.errors import ConfigError
from penstock.rates.limits import Limits, SourceLimits
from penstock.runtime.process.choices import choose_rates
from penstock.runtime.process.minimum_rates import in_record, minimum_rates, refuse_limits
from penstock.sinks import MemorySink
from penstock.sources import MemorySource


class Live(MemorySource):
    """A source whose rows are of now."""

    live = True


class Half:
    """An estimator of a job's own, which knows no least rate."""

    def compute(self, *_):
        return 5.0


@pytest.fixture
def settings_of(tmp_path):
    """Return the settings of a job for the keys of [limits] and [rates], one a line from lines 2 and 10 on.

    `own` is the text of the job's own file.
    """
    (tmp_path / "conf" / "jobs").mkdir(parents=True)

    def load(limits: str = "", rates: str = "", own: str = ""):
        (tmp_path / "conf" / "jobs" / "orders.toml").write_text(own)
        lines = ["[limits]", *limits.split("; ")]
        text = "\n".join([*lines, *[""] * (8 - len(lines)), "[rates]", *rates.split("; ")])
        (tmp_path / "conf" / "penstock.toml").write_text(text)
        return load_settings(tmp_path, "orders")[0]

    return load


def graph_of(*sources: MemorySource, make=None, **caps: float | None):
    """Return the graph of a job that reads these sources, with the limits of its code on the first."""
    job = Job("orders")
    for number, source in enumerate(sources):
        rows = job.source(f"s{number}", source)
        if caps and number == 0:
            rows.max_rate(caps.get("rows"), per_partition=caps.get("per_partition"))
        rows.write(f"out{number}", MemorySink())
    if make is not None:
        job.estimate_rate(make)
    return job.graph()


@pytest.mark.parametrize(
    ("limits", "rates", "sources", "line", "message"),
    [
        ("max_rate = 50", "min_rate = 80", 1, 2, "max_rate is 50 rows a second, too low for a min_rate of 80 ("),
        ("rows = 9; max_rate = 79", 'estimator = "pid"; min_rate = 80', 1, 3, "too low for a min_rate of 80 ("),
        ("max_rate = 30", "min_rate = 80", 2, 2, "too low for a min_rate of 80 of 2 sources together ("),
        (
            "max_rate_per_partition = 0.5", "min_rate_per_partition = 2", 1, 2,
            "max_rate_per_partition is 0.5 rows a second, too low for a min_rate_per_partition of 2 (",
        ),
        (
            "max_rate_per_partition = 3", 'estimator = "constant"; rate = 9; min_rate_per_partition = 4', 2, 2,
            "too low for a min_rate_per_partition of 4 (",
        ),
    ],
)  # fmt: skip
def test_a_limit_below_the_minimum_is_refused_at_its_line(settings_of, limits, rates, sources, line, message):
    """Both places are named, before Spark starts."""
    graph = graph_of(*[Live("x int")] * sources)
    with pytest.raises(ConfigError) as refused:
        choose_rates(graph, settings_of(limits, rates))
    assert refused.value.where.endswith(f"penstock.toml:{line}")
    assert message in refused.value.what
    assert "penstock.toml:1" in refused.value.what


@pytest.mark.parametrize(
    ("limits", "rates", "sources"),
    [
        ("max_rate = 50", "", 1),
        ("max_rate_per_partition = 0.5", "", 1),
        ("max_rate = 80", "min_rate = 80", 1),
        ("max_rate = 0.1", "min_rate = 0.3", 3),
        ("max_rate_per_partition = 2", "min_rate_per_partition = 2; min_rate = 80", 1),
        ("max_rate = 50", 'estimator = "constant"; rate = 9; min_rate = 80', 1),
        ("max_rate_per_partition = 1", 'estimator = "off"; min_rate_per_partition = 2', 1),
        ("max_rate = 50; max_rate_per_partition = 1", "min_rate = 80; min_rate_per_partition = 2", 0),
    ],
    ids=[
        "default", "default of partitions", "equal", "three thirds", "equal of partitions", "no estimate", "off", "replay",
    ],
)  # fmt: skip
def test_a_minimum_that_nobody_set_or_that_does_not_count_refuses_nothing(settings_of, limits, rates, sources):
    """A default gives way, and a minimum of an estimate counts only where one is made."""
    graph = graph_of(*[Live("x int")] * sources) if sources else graph_of(MemorySource("x int"))
    assert choose_rates(graph, settings_of(limits, rates)).least_per_partition > 0


def test_an_estimator_of_the_jobs_own_has_no_least_rate(settings_of):
    """It never reads `min_rate`; the minimum of partitions holds for every rate."""
    graph = graph_of(Live("x int"), make=lambda interval_ms: Half())
    choose_rates(graph, settings_of("max_rate = 50", "min_rate = 80"))
    with pytest.raises(ConfigError, match="too low for a min_rate_per_partition of 4"):
        choose_rates(graph, settings_of("max_rate_per_partition = 3", "min_rate_per_partition = 4"))


@pytest.mark.parametrize(
    ("caps", "key"), [({"rows": 50}, "min_rate"), ({"per_partition": 1}, "min_rate_per_partition")]
)
def test_a_limit_in_code_is_refused_at_its_line(settings_of, caps, key):
    """The lower of code and configuration holds, so its place is named."""
    graph = graph_of(Live("x int"), **caps)
    settings = settings_of("max_rate = 90; max_rate_per_partition = 90", "min_rate = 80; min_rate_per_partition = 2")
    with pytest.raises(ConfigError, match=rf"too low for a {key} of") as refused:
        choose_rates(graph, settings)
    file, _, line = refused.value.where.rpartition(":")
    assert __file__.endswith(file)
    assert ".max_rate(caps" in Path(__file__).read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize(
    ("rates", "own", "message"),
    [
        ("min_rate = 80", "[limits.sources.s0]\nmax_rate = 79", "max_rate is 79 rows a second, too low for a min_rate of"),
        (
            "min_rate_per_partition = 5", "[limits.sources]\ns0.max_rate_per_partition = 4",
            "max_rate_per_partition is 4 rows a second, too low for a min_rate_per_partition of 5",
        ),
    ],
)  # fmt: skip
def test_a_limit_of_one_source_below_the_minimum_is_refused_at_its_line(settings_of, rates, own, message):
    """In the job's own file, whatever is set for each."""
    settings = settings_of("max_rate = 90; max_rate_per_partition = 90", rates, own)
    with pytest.raises(ConfigError) as refused:
        choose_rates(graph_of(Live("x int")), settings)
    assert refused.value.where.endswith("orders.toml:2")
    assert message in refused.value.what


def test_a_limit_of_one_source_takes_the_place_of_the_codes(settings_of):
    """Nobody else has said what this source may have, so it may also have more."""
    graph = graph_of(Live("x int"), rows=50)
    with pytest.raises(ConfigError, match="too low"):
        choose_rates(graph, settings_of("max_rate = 90", "min_rate = 80"))
    choose_rates(graph, settings_of("", "min_rate = 80", "[limits.sources.s0]\nmax_rate = 90"))


def test_limits_of_a_source_that_the_job_has_not_are_refused_at_their_line(settings_of):
    """Before Spark starts; the nearest name is offered."""
    with pytest.raises(ConfigError, match="no source 's1' to limit; there is 's0'") as refused:
        choose_rates(graph_of(Live("x int")), settings_of("", "", "[limits]\nrows = 5\nsources.s1.rows = 3"))
    assert refused.value.where.endswith("orders.toml:3")


def test_a_source_without_a_limit_leaves_room_for_the_minimum(settings_of):
    """The code limits one of two sources, and the other may have the rest."""
    choose_rates(graph_of(Live("x int"), Live("x int"), rows=50), settings_of("", "min_rate = 80"))


def refuse(given: Limits, told: object, before: Limits | None = None) -> None:
    """Compare what somebody sets, over what was set before, with the minimums of a driver."""
    refuse_limits(before or Limits(), given.joined(before or Limits()), told)


def test_a_driver_notes_its_minimums_and_limits_are_compared_with_them(settings_of):
    """What `penstock limits` gives is for each of two sources, and the minimum is of both."""
    graph = graph_of(Live("x int"), Live("x int"))
    minimums = minimum_rates(graph, settings_of("", "min_rate = 80; min_rate_per_partition = 3"))
    told = json.loads(json.dumps(in_record(minimums)))
    with pytest.raises(ConfigError, match="too low for a min_rate of 80 of 2 sources together") as refused:
        refuse(Limits(max_rate=39), told)
    assert refused.value.where.endswith("penstock.toml:10")
    with pytest.raises(ConfigError, match="max_rate_per_partition is 2 rows a second"):
        refuse(Limits(max_rate_per_partition=2), told)
    refuse(Limits(max_rate=40, max_rate_per_partition=3, rows=1, paused=True), told)
    refuse(Limits(max_rate=None, max_rate_per_partition=None), told)
    # The other source may have what this one leaves of a minimum of both, and no partition of it makes up for another.
    refuse(Limits(sources={"s0": SourceLimits(max_rate=1), "x": SourceLimits(max_rate_per_partition=1)}), told)
    with pytest.raises(ConfigError, match="max_rate_per_partition of s0 is 2 rows a second"):
        refuse(Limits(sources={"s0": SourceLimits(max_rate_per_partition=2)}), told)
    one = Limits(sources={"s0": SourceLimits(max_rate=1)})
    refuse(one, told, Limits(max_rate=79))
    with pytest.raises(ConfigError, match="max_rate of s0 is 1 rows a second, too low for a min_rate of 80 of 2"):
        refuse(one, told, Limits(sources={"s1": SourceLimits(max_rate=78)}))
    # Where both are too low already, each can be raised by itself.
    low = Limits(sources={s: SourceLimits(max_rate=1, max_rate_per_partition=1) for s in ("s0", "s1")})
    refuse(Limits(sources={"s0": SourceLimits(max_rate=8, max_rate_per_partition=5)}), told, low)
    with pytest.raises(ConfigError, match="max_rate of s0 is 0.5 rows"):
        refuse(Limits(sources={"s0": SourceLimits(max_rate=0.5)}), told, low)
    # What is there already is not blamed on a limit of another kind.
    refuse(Limits(rows=5), told, Limits(max_rate=1))
    refuse(Limits(max_rate=1), told, Limits(sources={"s0": SourceLimits(max_rate=79)}))
    told = in_record(minimum_rates(graph_of(Live("x int")), settings_of("", "min_rate = 80")))
    with pytest.raises(ConfigError, match="max_rate of s0 is 79 rows a second"):
        refuse(Limits(sources={"s0": SourceLimits(max_rate=79)}), told)


@pytest.mark.fault("F77")
@pytest.mark.parametrize(
    "told", [None, [], {"max_rate": 5}, {"max_rate": {"rows": "x", "live": ["s"]}}, {"max_rate": {"rows": 9}}]
)
def test_an_odd_record_refuses_no_limit(told):
    """That of a driver that notes no minimum, or what makes no sense."""
    refuse_limits(Limits(), Limits(max_rate=1), told)
