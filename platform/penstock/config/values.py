"""Read the values that a configuration may hold: durations, triggers, sizes, names and settings of Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, GetPydanticSchema
from pydantic_core import CoreSchema, core_schema

from penstock.graph.durations import Duration, days, hours, micros, millis, minutes, seconds, whole_micros
from penstock.graph.names import is_name
from penstock.graph.schedules import AUTO, NEVER, EveryBatches, EveryMicros, Schedule
from penstock.time.triggers import AsFastAsPossible, FixedInterval, Trigger

__all__ = [
    "CheckpointEvery",
    "CronText",
    "DurationValue",
    "MasterText",
    "Name",
    "Size",
    "SparkConf",
    "TakeoverAfter",
    "Text",
    "TriggerValue",
    "UrlText",
    "flat_table",
    "is_local",
    "is_secret",
    "parse_duration",
    "parse_schedule",
    "parse_size",
    "parse_trigger",
    "parsed",
    "reference_of",
]

_UNITS = {
    "micros": micros,
    "millis": millis,
    "seconds": seconds,
    "minutes": minutes,
    "hours": hours,
    "days": days,
}
_SCHEDULES: dict[str, Schedule] = {"auto": AUTO, "never": NEVER}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) *([a-z]+)")
_SIZES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"([1-9]\d*) *(KiB|MiB|GiB|TiB)")
_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")
_CRON = re.compile(r"[0-9*/,\-]+(?: [0-9A-Za-z*/,\-?#]+){4}")
_CRON_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_LEAST_TAKEOVER = 5
"""Seconds; a holder writes its heartbeat every two, and one that is late once is not dead."""
_REFERENCE = re.compile(r"\$\{(env|file):([^{}]+)\}")
_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key")
"""What Spark itself redacts, by the name of a setting."""
_ABOUT_ONE = re.compile(r"(?i)(file|path|provider|class|enabled|type|alias|expiry|interval|url|uri)$")
_OURS = {
    "spark.master": "it is the key `master`",
    "spark.app.name": "it is the name of the job",
    "spark.pyspark.driver.python": "a driver is run by the interpreter that starts it",
    "spark.submit.deployMode": "drivers run where their supervisor does, and their executors on the cluster",
    "spark.jars": "`make setup` fills .jars",
    "spark.sql.adaptive.enabled": "state lives by partition number, and nothing may fold partitions together",
    "spark.sql.session.timeZone": "all times are UTC",
    "spark.sql.ansi.enabled": "an overflow must raise",
    "spark.sql.ansi.enforceReservedKeywords": "a column may be named as a word of SQL is",
}


def parse_duration(text: str) -> Duration:
    """Read a duration such as "10 seconds" or "500 millis"."""
    match = _DURATION.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match.group(2)) or _UNITS.get(f"{match.group(2)}s")
    if match is None or unit is None:
        raise ValueError(f'write a number and a unit, such as "10 seconds"; the units are {", ".join(_UNITS)}')
    try:
        return Duration(whole_micros(Decimal(match.group(1)), unit(1).micros))
    except ValueError as why:
        raise ValueError(f"that {why}") from None


def parse_trigger(text: str) -> Trigger:
    """Read a trigger: "as_fast", or "interval 10 seconds"."""
    if text == "as_fast":
        return AsFastAsPossible()
    word, _, rest = text.partition(" ")
    if word != "interval":
        raise ValueError('write "as_fast", or "interval" and a duration, such as "interval 10 seconds"')
    interval = parse_duration(rest)
    if interval < millis(1):
        raise ValueError("the least interval is 1 millis")
    return FixedInterval(interval.micros)


def parse_schedule(text: str) -> Schedule:
    """Read how often data checkpoints are made: "auto", "never", "100 batches" or a duration."""
    if text in _SCHEDULES:
        return _SCHEDULES[text]
    count, _, unit = text.partition(" ")
    if unit in ("batch", "batches"):
        if not re.fullmatch(r"[1-9]\d*", count):
            raise ValueError('write a whole number of at least 1 before "batches"')
        return EveryBatches(int(count))
    try:
        interval = parse_duration(text)
    except ValueError as why:
        raise ValueError(f'write "auto", "never", a number and "batches", or a duration; {why}') from None
    if not interval.micros:
        raise ValueError("the least interval is 1 micros")
    return EveryMicros(interval.micros)


def parse_size(text: str) -> int:
    """Read a size in bytes such as "512 MiB" or "20 GiB"."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'write a whole number and a unit, such as "20 GiB"; the units are {", ".join(_SIZES)}')
    return int(match.group(1)) * _SIZES[match.group(2)]


def flat_table(value: object) -> object:
    """Write out dotted keys that TOML has made tables of: spark.driver.memory = "4g"."""
    if not isinstance(value, dict):
        return value
    flat: dict[str, object] = {}
    for name, inner in value.items():
        below = flat_table(inner)
        flat.update({f"{name}.{k}": v for k, v in below.items()} if isinstance(below, dict) else {name: below})
    return flat


def reference_of(value: str) -> tuple[str, str] | None:
    """Return where a secret is, ("env", NAME) or ("file", PATH), for a value that names one."""
    match = _REFERENCE.fullmatch(value)
    return None if match is None else (match[1], match[2])


def is_secret(name: str) -> bool:
    """Return whether a setting of this name holds a secret, and does not just tell where or how."""
    return _SECRET.search(name) is not None and _ABOUT_ONE.search(name) is None


def _no_secrets(settings: dict[str, str]) -> dict[str, str]:
    """Return settings of Spark; raises ValueError, without the value, for a secret that is written out."""
    for name, value in settings.items():
        if is_secret(name) and reference_of(value) is None:
            raise ValueError(f"{name} is a secret: write where it is, '${{env:NAME}}' or '${{file:PATH}}'")
    return settings


def is_local(master: str) -> bool:
    """Return whether a Spark master runs all executors on the driver's machine; those of tests' clusters do as well."""
    return re.match(r"local(\[|-cluster\[|$)", master) is not None


def _checked_master(master: str) -> str:
    if not (is_local(master) or master == "yarn" or re.match(r"(spark|k8s)://.", master)):
        raise ValueError("write 'local[*]', 'spark://HOST:PORT', 'yarn' or 'k8s://URL'")
    return master


def _spark_setting(name: str) -> str:
    if not name.startswith("spark."):
        raise ValueError("settings of Spark begin with 'spark.'")
    if name in _OURS:
        raise ValueError(f"it cannot be set here: {_OURS[name]}")
    return name


def _parse_takeover(text: str) -> Duration:
    patience = parse_duration(text)
    if patience < seconds(_LEAST_TAKEOVER):
        raise ValueError(f"the least is {_LEAST_TAKEOVER:g} seconds: a holder writes its heartbeat every two")
    return patience


def _checked_cron(text: str) -> str:
    numbers = [[int(n) for n in re.findall(r"\d+", field.partition("/")[0])] for field in text.split(" ")]
    fits = all(low <= n <= high for values, (low, high) in zip(numbers, _CRON_RANGES, strict=False) for n in values)
    if text not in _PRESETS and not (_CRON.fullmatch(text) and fits):
        raise ValueError(f"write five fields of cron, such as '15 * * * *', or one of {', '.join(_PRESETS)}")
    return text


def _checked_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise ValueError("write http://HOST:PORT or https://HOST, without a name or a password in it")
    return text.rstrip("/")


def _checked_key(name: str) -> str:
    if not is_name(name):
        raise ValueError("a name is a lower-case letter, then up to 62 letters, digits or underscores")
    return name


def parsed(parse: Callable[[str], Any]) -> GetPydanticSchema:
    """Return what makes a field of a model hold the value that its text says; a file can hold nothing but the text."""

    def schema(_kind: Any, _handler: Any) -> CoreSchema:
        return core_schema.no_info_after_validator_function(parse, core_schema.str_schema(strict=True))

    return GetPydanticSchema(schema)


Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, AfterValidator(_checked_key)]
CheckpointEvery = Annotated[Schedule, parsed(parse_schedule)]
DurationValue = Annotated[Duration, parsed(parse_duration)]
TakeoverAfter = Annotated[Duration, parsed(_parse_takeover)]
Size = Annotated[int, parsed(parse_size)]
"""Bytes."""
TriggerValue = Annotated[Trigger, parsed(parse_trigger)]
CronText = Annotated[str, AfterValidator(_checked_cron)]
UrlText = Annotated[str, AfterValidator(_checked_url)]
MasterText = Annotated[Text, AfterValidator(_checked_master)]
SparkConf = Annotated[
    dict[Annotated[str, AfterValidator(_spark_setting)], str], BeforeValidator(flat_table), AfterValidator(_no_secrets)
]
