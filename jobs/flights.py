"""Hourly delays by airport and carrier, every ten minutes; what `make demo` runs.

Flights are replayed in the order in which they left, so a delayed one comes after flights that were due later.
"""

from penstock import Job, JobConf, agg, hours, minutes
from penstock.quality import OnFail
from penstock.sinks import Delta
from penstock.windows import Sliding


def build(conf: JobConf) -> Job:
    """Describe the job; `conf` is conf/jobs/flights.toml."""
    job = Job("flights")
    departures = job.source(
        "departures",
        conf.source("departures"),
        event_time="timestampadd(MINUTE, minute, time_hour)",  # the scheduled departure; time_hour is cut to the hour
        max_out_of_order=minutes(30),
    )
    hourly = (
        departures.filter("dep_delay IS NOT NULL")  # cancelled flights have none
        .key_by("origin", "carrier")
        .window("hourly", Sliding(hours(1), every=minutes(10)).late_to("late_departures"))
        .aggregate(flights=agg.count(), mean_delay=agg.mean("dep_delay"), worst=agg.max("dep_delay"))
    )
    hourly.check("hourly_quality", on_fail=OnFail.QUARANTINE).write("hourly_delays", Delta(conf.table("hourly_delays")))
    job.quarantine("hourly_quality").write("hourly_quarantine", Delta(conf.table("hourly_quarantine")))
    job.late("late_departures").write("late", Delta(conf.table("late_departures")))
    return job
