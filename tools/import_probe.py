"""Import one module and print, as a line of JSON, how long that took and what it loaded.

Run as `python tools/import_probe.py MODULE`, by `tools/check_light_imports.py`.
It is a file because pyspark ends a process whose main module has none (`python -c`), with 0 and without an error.
"""

from __future__ import annotations

import importlib
import json
import sys
import time

if __name__ == "__main__":
    begin = time.perf_counter()
    module = importlib.import_module(sys.argv[1])
    ms = (time.perf_counter() - begin) * 1000
    if module.__file__ is None:
        sys.exit("a folder without __init__.py: nothing was imported")
    print(json.dumps({"ms": ms, "modules": sorted(name for name in sys.modules if "." not in name)}))
