"""Find pyspark as files where Spark would have Python take it from an archive.

Spark puts `pyspark.zip` before all else that a Python worker finds. Python keeps nothing it compiles of an archive, so
each driver's first batch, and each executor's, waited half a second for pyspark to be compiled anew.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.metadata import distributions
from pathlib import Path

__all__ = ["without_archives"]

_ARCHIVE = re.compile(r"(pyspark\.zip|py4j-(?P<version>.+)-src\.zip)")


def without_archives(places: Sequence[str]) -> list[str]:
    """Return where to look for modules: for each archive of Spark's the folder of the same modules, where there is one.

    The same are those that came with the archive: pyspark installed as a package has the archive inside, and a Spark
    that was unpacked has the modules beside it. Of py4j, which is a package of its own, the version must be the same.
    An archive with neither stays. The order of all others is kept, and no folder comes before one that was before it.
    """
    plain = [place for place in places if not _ARCHIVE.fullmatch(Path(place).name)]
    found: list[str] = []
    for place in places:
        named = _ARCHIVE.fullmatch(Path(place).name)
        if named is None:
            found.append(place)
            continue
        instead = _py4j(named["version"], plain) if named["version"] else _pyspark(Path(place))
        if instead is None:
            found.append(place)
        elif instead not in plain:
            found.append(instead)
    return found


def _pyspark(archive: Path) -> str | None:
    """Return the folder that pyspark is imported from, given SPARK_HOME/python/lib/pyspark.zip."""
    python = archive.parent.parent
    for package in (python.parent, python / "pyspark"):
        if package.name == "pyspark" and (package / "__init__.py").is_file():
            return str(package.parent)
    return None


def _py4j(version: str, places: Sequence[str]) -> str | None:
    """Return the first of these places that has py4j, if it is of this version."""
    spec = PathFinder.find_spec("py4j", list(places))
    if spec is None or spec.origin is None:
        return None
    place = str(Path(spec.origin).parent.parent)
    return place if version in [found.version for found in distributions(name="py4j", path=[place])] else None
