"""Write the sample entries of docs/checkpoint-format.md: three entries of a log that the Harness has written.

python -m tools.checkpoint_format_page            # print them
python -m tools.checkpoint_format_page --write    # put them in place

Values that differ from run to run are replaced by fixed ones, and length and checksums are computed again.
`tests/docs/test_checkpoint_format_page.py` runs the same job and compares.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.pages import write_or_print

PAGE = Path(__file__).resolve().parents[1] / "docs" / "checkpoint-format.md"
WIDTH = 116
SHOWN = ("takeover", "offsets", "commit")
ROWS = """scheduled,carrier,delay
2013-01-01T09:10:00,AA,12
2013-01-01T09:40:00,DL,480
2013-01-01T11:20:00,AA,5
2013-01-01T09:50:00,UA,7
2013-01-01T11:50:00,AA,3
2013-01-01T12:10:00,AA,9
2013-01-01T12:20:00,DL,0
"""
SUITE = {
    "name": "hourly",
    "expectations": [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "mean_delay", "max_value": 300}}
    ],
}
_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_FIXED: Mapping[str, Any] = {
    "writer": "5f0c9d2ab1e34c77a90be1d2c3f40516",
    "holder": "host1:4711:4236864:4026531836",
    "checkpoint": "7d2c4f10-9b1e-4c3a-8f55-1e0a6b2d9c84",
    "checksum": _DIGEST,
    "size": 1024,
    "bytes": 1024,
}
_RUN = "c1d2e3f4a5b6"


def write_log(root: Path) -> Path:
    """Run two batches of a small job below a folder, and return the folder of its log."""
    from penstock import Job, agg, hours, minutes
    from penstock.quality import OnFail
    from penstock.sinks import Delta, MemorySink
    from penstock.sources import FileReplay
    from penstock.testing import Harness
    from penstock.windows import Tumbling

    (root / "departures.csv").write_text(ROWS, encoding="utf-8")
    replay = FileReplay(
        str(root / "departures.csv"),
        order_by="1",
        rows_per_batch=3,
        schema="scheduled timestamp, carrier string, delay int",
    )
    job = Job("flights", partitions=1)
    departures = job.source("departures", replay, event_time="scheduled", max_out_of_order=minutes(30))
    hourly = (
        departures.filter("delay IS NOT NULL")
        .key_by("carrier")
        .window("hourly", Tumbling(hours(1)).drop_late())
        .aggregate(flights=agg.count(), mean_delay=agg.mean("delay"))
    )
    checked = hourly.check("hourly_quality", suite=SUITE, on_fail=OnFail.QUARANTINE)
    checked.write("hourly_delays", Delta(str(root / "tables" / "hourly_delays")))
    job.quarantine("hourly_quality").write("quarantine", MemorySink())
    with Harness(job, root=root / "checkpoints") as harness:
        harness.batch(follow=False)
        harness.batch(follow=False)
    return root / "checkpoints" / "flights" / "log"


def steady(value: Any, root: Path) -> Any:
    """Replace what differs from run to run in the JSON of an entry by values of the same shape."""
    match value:
        case dict():
            fixed = {key: _FIXED[key] if key in _FIXED else steady(each, root) for key, each in value.items()}
            for name, number in (("timings", 1.5), ("written", 1024), ("load", 2.0)):
                if name in fixed:
                    fixed[name] = dict.fromkeys(sorted(fixed[name]), number)  # in the order in which tasks end
            return fixed
        case list():
            return [steady(each, root) for each in value]
        case str():
            text = value.replace(str(root), "/srv/streams")
            text = re.sub(r"^(\d{12}-\d+)-\d+-[0-9a-f]{12}(\.json)$", rf"\1-7-{_RUN}\2", text)
            return re.sub(r"^(\d{12}-\d+)-[0-9a-f]{12}-\d+-[0-9a-f]+-(\d+\.parquet)$", rf"\1-{_RUN}-7-2b0-\2", text)
        case _:
            return value


def lines_of(value: Any, indent: int = 0, used: int = 0) -> str:
    """Return JSON with a line for each field where it is too long for one; `used` columns stand before it."""
    flat = json.dumps(value)
    if indent + used + len(flat) <= WIDTH or not isinstance(value, dict | list):
        return flat
    deeper = indent + 2
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {lines_of(each, deeper, len(key) + 5)}" for key, each in value.items()]
    else:
        items = [lines_of(each, deeper, 1) for each in value]
    left, right = "{}" if isinstance(value, dict) else "[]"
    inner = f",\n{' ' * deeper}".join(items)
    return f"{left}\n{' ' * deeper}{inner}\n{' ' * indent}{right}"


def samples(root: Path) -> Iterator[tuple[str, str]]:
    """Run the job below a folder; yield (kind, text) of the newest entry of each kind that the page shows."""
    from penstock.checkpoint.log.entries import from_bytes, to_bytes
    from penstock.checkpoint.storage.format import encode

    newest = {}
    for path in sorted(write_log(root).iterdir()):
        header, body = path.read_text(encoding="utf-8").split("\n", 1)
        newest[json.loads(header)["kind"]] = body
    for kind in SHOWN:
        data = encode(kind, steady(json.loads(newest[kind]), root))
        assert to_bytes(from_bytes(data, kind)) == data
        header, body = data.decode().split("\n", 1)
        yield kind, f"{header}\n{lines_of(json.loads(body))}"


def put_in(page: str, kind: str, sample: str) -> str:
    """Return the page with the sample of one kind in place of the one it has."""
    block = re.compile(rf"(<!-- sample: {kind} -->\n```json\n).*?(\n```)", re.DOTALL)
    changed, places = block.subn(lambda match: f"{match[1]}{sample}{match[2]}", page)
    if places != 1:
        msg = f"the page has {places} places for the sample of a {kind}"
        raise ValueError(msg)
    return changed


def render(page: str, root: Path) -> str:
    """Return the page with samples of a run below a folder."""
    for kind, sample in samples(root):
        page = put_in(page, kind, sample)
    return page


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(write_or_print(PAGE, render(PAGE.read_text(encoding="utf-8"), Path(folder).resolve())))
