"""Post that windows were closed and published, as events of an Airflow asset (DESIGN 11).

The poster writes a cursor for each job after the post, so events are at-least-once. Consumers recognise duplicates by
job, step and batch. A stream never waits for an event.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from penstock.checkpoint.control_records import Records
from penstock.checkpoint.log.batch_report import closed_windows, moment
from penstock.checkpoint.log.entries import Commit, Release, Restore
from penstock.checkpoint.log.takeover import survey
from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.config.notifications import AirflowLogin
from penstock.quality.held.decision_records import HeldDecision, HeldRecords
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.supervise.events.poster import Poster

__all__ = ["AirflowAssets", "AssetPoster", "asset_uri", "events_of_windows"]

log = structlog.get_logger()

_CONNECT, _ANSWER = 3.0, 15.0
_HELD = "hold"
_MOST_WAITING = 1_000
"""Events that are kept for a job while Airflow does not accept them; older ones are dropped."""
_LOG_FILE = re.compile(r"(\d{20})\.json")


def asset_uri(job: str) -> str:
    """Return the URI of the asset that stands for the windows which a job has published."""
    return f"penstock://{job}/windows"


@dataclass(kw_only=True)
class AssetPoster(Poster):
    """Post the windows that were published; `root` is the folder of the jobs' checkpoints.

    `post` gets an asset's URI and an event of it. It returns False where nobody knows the asset, and raises OSError
    where that is unknown.
    """

    root: CheckpointFolder
    post: Callable[[str, dict[str, Any]], bool]

    def post_news(self, job: str) -> None:
        """Write down what is to be said of new batches, then post it, one event after the other."""
        cursors = Records(self.store, "assets", job)
        record = cursors.newest()
        cursor = record.body if record is not None else None
        newest = _published_to(self.root / job, self.store, job)
        held = HeldRecords(self.store, job)
        known = cursor.get("uuid") if cursor is not None else None
        uuid = held.uuid() or known
        if cursor is not None and known not in (None, uuid):
            # Another checkpoint of the name, which counts its batches from 0: the cursor speaks of none of them.
            cursor = {"batch": -1, "released": [], "waiting": cursor["waiting"], "uuid": uuid}
            cursors.put(cursor)
        if cursor is None:
            # What was published before anybody listened is history, and not news.
            old = self.first_look(job)
            history = {"batch": newest if old else -1, "released": held.released() if old else []}
            cursor = {**history, "waiting": [], "uuid": uuid}
            cursors.put(cursor)
        after, waiting = int(cursor["batch"]), list(cursor["waiting"])
        known_releases = cursor.get("released")
        late = held.released(but=known_releases) if known_releases is not None else []
        # A cursor of an earlier version says nothing of them: what was released before is history as well.
        released = [*known_releases, *late] if known_releases is not None else held.released()
        if newest > after or late or known_releases is None:
            # Fixed before it is posted, so that what comes twice is the same twice, and kept though commits are purged.
            fresh: list[dict[str, Any]] = []
            for before, commits in _stretches(self.root / job, after, newest) if newest > after else ():
                fresh += events_of_windows(job, commits, before=before)
            for batch in late:
                fresh += _events_of_release(job, batch, held.ruling(batch))
            tables = self._tables(job) if fresh else {}
            waiting = [*waiting, *({**extra, "tables": tables} for extra in fresh)][-_MOST_WAITING:]
            cursors.put({"batch": max(newest, after), "released": released, "waiting": waiting, "uuid": uuid})
        for place, extra in enumerate(waiting, start=1):
            if not self.post(asset_uri(job), extra):
                raise OSError(f"no DAG in Airflow waits for the asset {asset_uri(job)}, or speaks of it")
            log.info("asset.posted", job=job, step=extra["step"], batch=extra["batch"])
            left = {"waiting": waiting[place:], "uuid": uuid}
            cursors.put({"batch": max(newest, after), "released": released, **left})
        cursors.prune()

    def _tables(self, job: str) -> dict[str, int]:
        """Return the version of each Delta table that the job's driver names, by path."""
        record = StatusRecords(self.store, job).newest()
        paths = (record.body.get("tables") or {}) if record is not None else {}
        return {str(path): version for path in paths.values() if (version := _version(Path(path))) is not None}


def events_of_windows(job: str, commits: Sequence[Commit], *, before: Commit | None = None) -> Iterator[dict[str, Any]]:
    """Yield what to say of some batches, one after the other: an event for each step that has closed windows.

    `before` is the Commit that they follow, if it is known. The windows are those that end after `after` and not after
    `until`, moments as text; `after` is None where it is not known. The verdicts count windows by what their gates
    found, without those of checks that hold some back, and `rows` what each sink was given.
    """
    published = [commit for commit in commits if any(f.rows for files in commit.staged.values() for f in files)]
    if not published:
        return
    first, last = commits[0], commits[-1]
    rows: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    for commit in published:
        rows.update({sink: sum(f.rows for f in files) for sink, files in commit.staged.items()})
        holding = {v["check"] for v in commit.verdicts if v.get("action") == _HELD}
        verdicts.update(str(v["status"]) for v in commit.verdicts if v["check"] not in holding)
    for step, bounds in closed_windows(last, before).items():
        yield _event(job, step, (first.batch, last.batch), bounds, rows, verdicts)


def _event(
    job: str, step: str, batches: tuple[int, int], windows: tuple[int | None, int], rows: Mapping[str, int],
    verdicts: Mapping[str, int],
) -> dict[str, Any]:  # fmt: skip
    return {
        "job": job,
        "step": step,
        "batch": batches[1],
        "first_batch": batches[0],
        "windows": {"after": moment(windows[0]), "until": moment(windows[1])},
        "rows": dict(rows),
        "verdicts": dict(verdicts),
    }


def _events_of_release(job: str, batch: int, ruling: HeldDecision | None) -> Iterator[dict[str, Any]]:
    """Yield what to say of a batch that a gate held and somebody has released, whatever the log still has of it."""
    if ruling is not None:
        for step, bounds in ruling.windows.items():
            yield {**_event(job, step, (batch, batch), bounds, ruling.rows, {}), "released": True}


def _published_to(folder: CheckpointFolder, store: CheckpointStore, job: str) -> int:
    """Return the newest batch that every sink is known to show, -1 for none."""
    log = job_log(folder, identified=False)
    if log is None:
        return -1
    view = survey(log)
    known = -1
    for _, entry in log.entries_back(view.tail):
        if isinstance(entry, Release | Commit):
            known = min(entry.published.values(), default=-1)
            break
    status = StatusRecords(store, job).newest()
    last = status.body.get("last") if status is not None else None
    ours = view.takeover is not None and status is not None and status.body.get("epoch") == view.takeover.epoch
    # The status tells a batch when it is published.
    return max(known, int(last["batch"])) if ours and isinstance(last, dict) else known


def _stretches(folder: CheckpointFolder, after: int, newest: int) -> list[tuple[Commit | None, list[Commit]]]:
    """Return the Commits after a batch in stretches, oldest first, each with the Commit that it follows, if known.

    A restore begins a stretch: its windows follow those of a batch long before. What was purged is not there.
    """
    log = job_log(folder, identified=False)
    assert log is not None
    stretches: list[tuple[Commit | None, list[Commit]]] = []
    back: list[Commit] = []
    before: Commit | None = None
    for _, entry in log.entries_back(log.find_tail()):
        if isinstance(entry, Commit):
            if entry.batch <= after:
                before = entry
                break
            if entry.batch <= newest:
                back.append(entry)
        elif isinstance(entry, Restore):
            if back:
                stretches.append((None, back[::-1]))
            back = []
    if back:
        stretches.append((before, back[::-1]))
    return stretches[::-1]


def _version(table: Path) -> int | None:
    """Return the version of a Delta table, by the names in its log."""
    names = (_LOG_FILE.fullmatch(path.name) for path in (table / "_delta_log").glob("*.json"))
    return max((int(match.group(1)) for match in names if match), default=None)


class AirflowAssets:
    """The assets of an Airflow, over its REST interface."""

    def __init__(self, login: AirflowLogin) -> None:
        self._airflow = login
        self._token: str | None = None
        self._ids: dict[str, int] = {}

    def post(self, uri: str, extra: dict[str, Any]) -> bool:
        """Post one event; False where Airflow does not know the asset.

        Raises OSError where Airflow does not answer as it should, and ConfigError where there is no password.
        """
        import requests

        with requests.Session() as http:
            if uri not in self._ids:
                assets = self._call(http, "GET", "/api/v2/assets", params={"uri_pattern": uri})["assets"]
                named = [asset["id"] for asset in assets if asset["uri"] == uri]
                if not named:
                    return False
                self._ids[uri] = named[0]
            self._call(http, "POST", "/api/v2/assets/events", json={"asset_id": self._ids[uri], "extra": extra})
        return True

    def _call(self, http: Any, method: str, path: str, **more: Any) -> Any:
        for fresh in (False, True):
            if self._token is None or fresh:
                self._token = self._login(http)
            headers = {"Authorization": f"Bearer {self._token}"}
            answer = http.request(
                method, f"{self._airflow.url}{path}", headers=headers, timeout=(_CONNECT, _ANSWER), **more
            )
            if answer.status_code != 401:  # noqa: PLR2004 - a token that has ended
                break
        if not answer.ok:
            self._ids.clear()  # the asset may have gone
            raise OSError(f"Airflow answered {method} {path} with {answer.status_code}")
        return answer.json()

    def _login(self, http: Any) -> str:
        login = {"username": self._airflow.user, "password": self._airflow.password.read().get_secret_value()}
        answer = http.post(f"{self._airflow.url}/auth/token", json=login, timeout=(_CONNECT, _ANSWER))
        if not answer.ok:
            raise OSError(f"Airflow answered the login of {self._airflow.user!r} with {answer.status_code}")
        return str(answer.json()["access_token"])
