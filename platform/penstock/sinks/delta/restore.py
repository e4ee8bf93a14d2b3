"""Find the version of a Delta table that showed a batch of a checkpoint, and put it in force again (SEMANTICS 10.1).

The `txn` action of a version's commit names its writer:

- `<uuid>/<sink>`, with the batch: a publication.
- `<uuid>/<sink>/held/<batch>`: the release of a held batch.
- `<uuid>/<sink>/truncate`, with the slot of the Restore: a truncation.

Every other commit belongs to another program, and is never undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.errors import CannotTruncate, SinkConflict
from penstock.sinks.base import Target
from penstock.sinks.delta.log_entry import Actions, actions_of, find_commit, make_entries_durable
from penstock.sinks.delta.table import PLAIN_WRITER, asked_of_writers, load

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["choose_version", "find_version", "put_back", "shown_version"]

_TRIES = 10
"""How often a commit is tried that another program's commit overtakes."""


class _Whose(Enum):
    """The relation of a table's version to a target."""

    THEN = "then"
    """The app's, and part of the table when the target's batch was committed."""
    SINCE = "since"
    """The app's, and it came later: it is to be undone."""
    OTHER = "other"
    """Somebody else's, or the rows of a batch that the target has, which a person released later."""
    NONE = "none"
    """It changes nothing in the table."""


def find_version(path: Path, target: Target) -> int | None:
    """Return the version that shows the target; None where it is in force, or there is no table.

    Raises CannotTruncate:

    - where another program has committed since that version;
    - where its files or the log of the table are gone;
    - where the table asks for more than delta-rs may write.
    """
    table = load(path)
    if table is None:
        return None
    version = choose_version(_history(path, table.version()), target, path)
    if version is None:
        return None
    _refuse_unfit(table, path)
    _refuse_without_files(table, version, path)
    return version


def shown_version(path: Path, newest: int, target: Target) -> int | None:
    """Return the version that a truncation would leave in force, None where a truncation is refused.

    `newest` is the version that is in force.
    """
    try:
        version = choose_version(_history(path, newest), target, path)
    except CannotTruncate:
        return None
    return newest if version is None else version


def choose_version(history: Iterable[tuple[int, Actions]], target: Target, path: Path) -> int | None:
    """Return the version to put in force, None where the newest shows the target; pure.

    `history` has the versions of a table with what their commits did, the newest first. Raises CannotTruncate where
    somebody else has committed since.
    """
    version: int | None = None
    others: list[tuple[int, str]] = []
    for number, actions in history:
        whose, author = _whose(actions, target)
        if whose is _Whose.THEN:
            break
        if whose is _Whose.SINCE:
            version = number - 1
        elif whose is _Whose.OTHER:
            others.append((number, author))
    if version is not None:
        _refuse_others([(number, author) for number, author in others if number > version], path)
    return version


def put_back(path: Path, target: Target, version: int, *, slot: int, newest: int) -> bool:
    """Put a version in force again, once for the Restore in `slot`; return False where that was done before.

    `newest` is the highest batch that the log knew when it was read: a later one in the table is a newer driver's.
    Raises CannotTruncate where somebody else has committed since the version.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError

    for _ in range(_TRIES):
        table = DeltaTable(str(path))
        done = table.transaction_version(target.truncation)
        if done is not None and done >= slot:
            # Who did it may have died before it was durable.
            entry = find_commit(path, table.version(), target.truncation, done)
            make_entries_durable(path, [] if entry is None else [entry])
            return False
        seen = table.transaction_version(target.app)
        if seen is not None and seen > newest:
            raise CannotTruncate(f"the table has batch {seen} already, of a driver that came later", where=str(path))
        since = [(number, *_whose(actions, target)) for number, actions in _history(path, table.version(), version)]
        _refuse_others([(number, author) for number, whose, author in since if whose is _Whose.OTHER], path)
        before = table.version()
        properties = CommitProperties(app_transactions=[Transaction(target.truncation, slot)])
        try:
            # The commit follows the version read above, or fails: delta-rs does not restore on top of a newer one.
            table.restore(version, commit_properties=properties)
        except CommitFailedError:
            continue
        except DeltaError as why:
            raise CannotTruncate(f"delta-rs cannot restore version {version}: {why}", where=str(path)) from why
        make_entries_durable(path, range(before + 1, DeltaTable(str(path)).version() + 1))
        return True
    raise SinkConflict(f"putting version {version} back lost {_TRIES} races", where=str(path))


def _history(path: Path, newest: int, until: int = -1) -> Iterator[tuple[int, Actions]]:
    """Yield the versions from the newest down to that behind `until`, with the actions of their commits."""
    for number in range(newest, until, -1):
        actions = actions_of(path, number)
        if actions is None:
            raise CannotTruncate(f"the log of the table no longer says who wrote version {number}", where=str(path))
        yield number, actions


def _whose(actions: Actions, target: Target) -> tuple[_Whose, str]:
    for txn in (action["txn"] for action in actions if "txn" in action):
        app, version = str(txn["appId"]), int(txn["version"])
        if app == target.app:
            return (_Whose.THEN if target.has(version) else _Whose.SINCE), f"batch {version}"
        if app == target.truncation:
            then = target.batch is not None and version < target.slot
            return (_Whose.THEN if then else _Whose.SINCE), "a truncation"
        if app == f"{target.app}/held/{version}":
            return (_Whose.OTHER if target.has(version) else _Whose.SINCE), f"the release of batch {version}"
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    if not any(_changes_rows(action) for action in actions):
        return _Whose.NONE, ""
    return _Whose.OTHER, str(info.get("operation", "a commit"))


def _changes_rows(action: Mapping[str, Any]) -> bool:
    """Return whether readers see another table: not where files only take the places of others, as upkeep has them."""
    of_file = action.get("add") or action.get("remove")
    return "commitInfo" not in action if of_file is None else bool(of_file.get("dataChange", True))


def _refuse_others(others: list[tuple[int, str]], path: Path) -> None:
    if others:
        number, author = others[-1]
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise CannotTruncate(f"version {number} of the table{more} would be undone as well: {author}", where=str(path))


def _refuse_unfit(table: DeltaTable, path: Path) -> None:
    asked = asked_of_writers(table)
    if table.metadata().configuration.get("delta.appendOnly") == "true":
        raise CannotTruncate("the table takes rows and gives none back: delta.appendOnly", where=str(path))
    if table.protocol().min_writer_version > PLAIN_WRITER or asked:
        features = f": {', '.join(asked)}" if asked else ""
        raise CannotTruncate(f"the table asks for more than delta-rs may write{features}", where=str(path))


def _refuse_without_files(table: DeltaTable, version: int, path: Path) -> None:
    """Refuse a version whose files are gone; those that are in force now are not looked at."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        wanted = set(DeltaTable(str(path), version=version).file_uris()) - set(table.file_uris())
    except DeltaError as why:
        raise CannotTruncate(f"version {version} of the table cannot be read any more", where=str(path)) from why
    gone = [name for name in sorted(wanted) if not Path(name).is_file() and not Path(unquote(name)).is_file()]
    if gone:
        names = f"{Path(gone[0]).name}" + (f" and {len(gone) - 1} more" if len(gone) > 1 else "")
        raise CannotTruncate(f"files of version {version} of the table are gone: {names}", where=str(path))
