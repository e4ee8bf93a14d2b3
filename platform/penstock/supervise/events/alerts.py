"""Post to a webhook when a stream is in trouble, and when it is well again.

Alerts come from the records of the streams, which the supervisor writes, and not from commands that wait for a stream.
The poster writes its cursor after each post, so alerts are at-least-once, and none is lost with a supervisor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import structlog

from penstock.checkpoint.control_records import Records
from penstock.checkpoint.log.batch_report import moment
from penstock.config.references import Secret
from penstock.supervise.events.poster import Poster
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import Phase, Stream

__all__ = ["AlertPoster", "Webhook"]

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
        cursors = Records(self.store, "alerts", job)
        newest = cursors.newest()
        history = StreamRecords(self.store, job).history()
        if not history:
            return
        if newest is not None:
            at = _Cursor(int(newest.body["record"]), newest.body["phase"], trouble=bool(newest.body["trouble"]))
        else:
            # What happened before anybody listened is history; whether it is in trouble now, is not.
            at = _Cursor(history[-1][0] - 1 if self.first_look(job) else -1, None, trouble=False)
            cursors.put(asdict(at))
        if history[-1][0] <= at.record:
            return
        for number, stream in history:
            if number <= at.record:
                continue
            alert, at = _next(job, number, stream, at)
            if alert is not None:
                self.post(alert)
                cursors.put(asdict(at))
                log.info("alert.posted", job=job, phase=alert["phase"])
        cursors.put(asdict(at))
        cursors.prune()


@dataclass(frozen=True, slots=True)
class _Cursor:
    """How far alerts have come: the number of a record, its phase, and whether the last alert is of trouble."""

    record: int
    phase: str | None
    trouble: bool


def _next(job: str, number: int, stream: Stream, at: _Cursor) -> tuple[dict[str, Any] | None, _Cursor]:
    """Return the alert for a record, None for none, and the cursor after it.

    There is one for every step into another kind of trouble, and for the first record after trouble that says that the
    stream runs or has finished.
    """
    phase = stream.phase
    stays = phase.value == at.phase
    news = not stays and (phase in _TROUBLE or (at.trouble and phase in _WELL))
    trouble = phase in _TROUBLE if news else at.trouble
    return (_alert(job, stream) if news else None), _Cursor(number, phase.value, trouble)


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
