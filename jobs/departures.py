"""Hourly delays by airport and carrier, from a topic that is written meanwhile; what `make demo-kafka` runs.

The topic has a partition for each airport. Its records come late, twice, and some cannot be decoded.
Where the environment has `DEPARTURES_DSN`, which says how to connect to PostgreSQL, the windows go there too.
"""

import os

from penstock import Job, JobConf, agg, days, hours, minutes
from penstock.sinks import Delta, Kafka, Mode, NewTopic, Postgres
from penstock.windows import Tumbling


def build(conf: JobConf) -> Job:
    """Describe the job; `conf` is conf/jobs/departures.toml."""
    job = Job("departures", partitions=2)
    topic = conf.source("departures")
    departures = job.source("departures", topic, event_time="scheduled", max_out_of_order=minutes(30))
    hourly = (
        departures.deduplicate("once", by=["id"], within=days(30))
        .filter("delay IS NOT NULL")  # cancelled flights have none
        .key_by("origin", "carrier")
        .window("hourly", Tumbling(hours(1)).late_to("late_departures"))
        .aggregate(flights=agg.count(), mean_delay=agg.mean("delay"), worst=agg.max("delay"))
    )
    hourly.write("hourly_departures", Delta(conf.table("hourly_departures")))
    keys, created = ["origin", "carrier"], NewTopic(partitions=3)
    hourly.write("hourly_topic", Kafka("hourly-departures", servers=topic.servers, key=keys, new_topic=created))
    if dsn := os.environ.get("DEPARTURES_DSN"):
        windows = [*keys, "window_start"]
        hourly.write("hourly_database", Postgres(dsn, "hourly_departures", mode=Mode.UPSERT, keys=windows))
        hourly.write("newest_database", Postgres(dsn, "newest_departures", mode=Mode.UPSERT, keys=keys))
    job.late("late_departures").write("late", Delta(conf.table("late_departures")))
    job.quarantine("departures").write("undecodable", Delta(conf.table("undecodable")))
    return job
