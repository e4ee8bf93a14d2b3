"""The configuration chooses the estimator, and code and configuration may not contradict (SEMANTICS 8.0)."""

import pytest

from penstock import Job, seconds
from penstock.config.settings import load_settings
from penstock.errors import ConfigError, IntervalUnfit
from penstock.rates import Constant, CostModel, PIDRateEstimator
from penstock.runtime.process.choices import choose_rates, choose_trigger
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.time.triggers import FixedInterval
from penstock.windows import BatchWindow


@pytest.fixture
def settings_of(tmp_path):
    """Return the settings of a job for the text of the project's file."""
    (tmp_path / "conf").mkdir()

    def load(text: str):
        (tmp_path / "conf" / "penstock.toml").write_text(text)
        return load_settings(tmp_path, "orders")[0]

    return load


def graph_of(make=None):
    """Return the graph of a job, with an estimator of its own where there is one."""
    job = Job("orders")
    job.source("s", MemorySource("x int")).write("out", MemorySink())
    if make is not None:
        job.estimate_rate(make)
    return job.graph()


def test_costs_decide_unless_something_else_is_said(settings_of):
    """The default of SEMANTICS 8.0, with the cap of the first batch of 8.3."""
    policy = choose_rates(graph_of(), settings_of(""))
    estimator = policy.estimator(2_000.0)
    assert isinstance(estimator, CostModel)
    assert (estimator.batch_interval_ms, estimator.headroom, estimator.min_rate) == (2_000.0, 0.85, 100.0)
    assert (policy.initial_rate, policy.first_batch, policy.least_per_partition, policy.target) == (
        None,
        10_000,
        1,
        10_000_000,
    )


@pytest.mark.parametrize(("longest", "expected"), [("", 120_000.0), ("30 seconds", 30_000.0), ("1 second", 2_000.0)])
def test_a_longest_interval_bounds_what_a_backlog_is_read_in(settings_of, longest, expected):
    """SEMANTICS 8.4: one below the job's own, here two seconds, lengthens none."""
    text = f'[rates]\nlongest_interval = "{longest}"\n' if longest else ""
    assert choose_rates(graph_of(), settings_of(text)).estimator(2_000.0).longest_interval_ms == expected


def test_each_estimator_gets_its_settings(settings_of):
    """As [rates] has them."""
    pid = choose_rates(graph_of(), settings_of('[rates]\nestimator = "pid"\nintegral = 0.5\nmin_rate = 7\n')).estimator(
        500.0
    )
    assert isinstance(pid, PIDRateEstimator)
    assert (pid.batch_interval_ms, pid.proportional, pid.integral, pid.min_rate) == (500.0, 1.0, 0.5, 7.0)
    policy = choose_rates(graph_of(), settings_of('[rates]\nestimator = "constant"\nrate = 12\n'))
    assert isinstance(policy.estimator(500.0), Constant)
    assert policy.initial_rate == 12
    assert choose_rates(graph_of(), settings_of('[rates]\nestimator = "off"\n')).estimator is None
    assert choose_rates(graph_of(), settings_of('[rates]\nfirst_batch = "unbounded"\n')).first_batch is None


def test_an_estimator_of_the_jobs_own_takes_the_place_of_the_configured_one(settings_of):
    """SEMANTICS 8.0: it is made for the batch interval. Where [rates] names one too, one of them has to go."""
    policy = choose_rates(graph_of(PIDRateEstimator), settings_of("[rates]\ninitial_rate = 7\n"))
    assert (policy.estimator(500.0).estimator.batch_interval_ms, policy.initial_rate) == (500.0, 7)
    with pytest.raises(ConfigError, match="keep one") as refused:
        choose_rates(graph_of(PIDRateEstimator), settings_of('[rates]\nestimator = "pid"\n'))
    assert refused.value.where.endswith("penstock.toml:2")


def test_a_constant_rate_that_is_not_given_is_refused_at_its_line(settings_of):
    """Before the job starts."""
    with pytest.raises(ConfigError, match="needs a `rate`") as refused:
        choose_rates(graph_of(), settings_of('\n[rates]\nestimator = "constant"\n'))
    assert refused.value.where.endswith("penstock.toml:3")


def test_an_interval_that_code_and_configuration_say_differently_is_refused(settings_of):
    """One of them has to go."""
    job = Job("orders", interval=seconds(2))
    job.source("s", MemorySource("x int")).write("out", MemorySink())
    assert choose_trigger(job, settings_of("")) == FixedInterval(2_000_000)
    with pytest.raises(ConfigError, match="keep one of them"):
        choose_trigger(job, settings_of('[run]\ntrigger = "interval 3 seconds"\n'))


@pytest.mark.remedy("PEN-JOB-026")
def test_a_window_of_batch_time_goes_by_a_fixed_interval(settings_of):
    """SEMANTICS 1.4, 4.1: the trigger may be the configuration's, must suit the window, and cannot adapt."""
    job = Job("windows")
    rows = job.source("rows", MemorySource("v int"))
    rows.window("w", BatchWindow(seconds(4))).count().write("out", MemorySink())
    every = '[run]\ntrigger = "interval {} seconds"\n'
    assert choose_trigger(job, settings_of(every.format(2))) == FixedInterval(2_000_000)
    with pytest.raises(IntervalUnfit, match="no multiple of the job's interval, 3 s"):
        choose_trigger(job, settings_of(every.format(3)))
    with pytest.raises(IntervalUnfit, match="as fast as possible"):
        choose_trigger(job, settings_of(""))
    with pytest.raises(IntervalUnfit, match="cannot adapt, and `longest_interval` is 20 s"):
        choose_trigger(job, settings_of(every.format(2) + '[rates]\nlongest_interval = "20 seconds"\n'))
