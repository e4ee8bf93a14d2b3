"""Tell people, through a webhook, when a stream is in trouble, and when it is well again.

Alerts come from the records of the streams, which the supervisor writes, and not from whoever waits for a stream.
How far they were told is written down after the post, so each comes at least once, and none is lost with a supervisor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import structlog

from penstock.checkpoint.control import Records
from penstock.runtime.batch_report import moment
from penstock.runtime.config_events import Secret
from penstock.supervise.posting import Poster
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import Phase, Stream

__all__ = ["AlertPoster", "Webhook", "alerts_of"]

log = structlog.get_logger()

_TROUBLE = (Phase.FAILED, Phase.UNHEALTHY, Phase.PAUSED, Phase.BACKOFF)
_WELL = (Phase.RUNNING, Phase.FINISHED)
_CONNECT, _ANSWER = 3.0, 15.0

Post = Callable[[dict[str, Any]], None]


@dataclass(kw_only=True)
class AlertPoster(Poster):
    """Post what befell the streams; `post` raises OSError where an alert did not arrive."""

    post: Post

    def post_news(self, job: str) -> None:
        """Post the steps into trouble, and out of it."""
        told = Records(self.store, "alerts", job)
        streams = StreamRecords(self.store, job)
        found = told.newest()
        newest = streams.number()
        if found is None:
            # What happened before anybody listened is history; whether it is in trouble now, is not.
            told.put({"record": newest - 1, "trouble": False})
            found = told.newest()
            assert found is not None
        after, trouble = int(found.body["record"]), bool(found.body["trouble"])
        if newest <= after:
            return
        history = [(number, stream) for number, stream in streams.history() if number > after]
        for number, alert in alerts_of(job, history, trouble=trouble):
            self.post(alert)
            trouble = alert["phase"] not in {phase.value for phase in _WELL}
            told.put({"record": number, "trouble": trouble})
            log.info("alert.posted", job=job, phase=alert["phase"])
        told.put({"record": newest, "trouble": trouble})
        told.prune()


def alerts_of(
    job: str, history: Iterable[tuple[int, Stream]], *, trouble: bool
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what to tell of a stream's records, each with the record's number, oldest first.

    Told is every step into another kind of trouble, and the first record that says that it runs, or has finished,
    after trouble. `trouble` is whether the last that was told is trouble.
    """
    phase: Phase | None = None
    for number, stream in history:
        if stream.phase is phase:
            continue
        phase = stream.phase
        if phase in _TROUBLE or (trouble and phase in _WELL):
            trouble = phase in _TROUBLE
            yield number, _alert(job, stream)


def _alert(job: str, stream: Stream) -> dict[str, Any]:
    reason = f": {stream.reason}" if stream.reason else ""
    return {
        "text": f"Penstock: {job} is {stream.phase.value}{reason}",
        "job": job,
        "phase": stream.phase.value,
        "reason": stream.reason,
        "generation": stream.generation,
        "since": moment(stream.since),
    }


@dataclass(frozen=True, slots=True)
class Webhook:
    """Post alerts as JSON to an address that is a secret; `text` in it is what chat programs show."""

    address: Secret

    def __call__(self, alert: dict[str, Any]) -> None:
        """Post one; raises OSError where it was not taken, and ConfigError where there is no address."""
        import requests

        url = self.address.read().get_secret_value()
        try:
            answer = requests.post(url, json=alert, timeout=(_CONNECT, _ANSWER))
        except (requests.RequestException, ValueError) as why:
            # The message would hold the address.
            raise OSError(f"the webhook does not answer: {type(why).__name__}") from None
        if not answer.ok:
            raise OSError(f"the webhook answered with {answer.status_code}")
