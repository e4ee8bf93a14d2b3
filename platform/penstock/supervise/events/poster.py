"""Post what happens to streams to those who listen, job by job, and again until it has arrived."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import structlog

from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import PenstockError
from penstock.supervise.records import supervised_jobs

__all__ = ["Poster"]

log = structlog.get_logger()


@dataclass(kw_only=True)
class Poster(ABC):
    """Post the news of the streams of one control root; `look` is called every few seconds."""

    store: CheckpointStore
    _at_first: set[str] | None = None
    _troubled: dict[str, str] = field(default_factory=dict)

    def look(self) -> None:
        """Post what is new; a failure is logged once, and a later call posts the rest."""
        try:
            jobs = supervised_jobs(self.store)
        except (PenstockError, OSError) as why:
            self._tell("", str(why))
            return
        if self._at_first is None:
            self._at_first = set(jobs)
        for job in jobs:
            try:
                self.post_news(job)
            except (PenstockError, OSError) as why:
                self._tell(job, str(why))
            except Exception as why:  # noqa: BLE001 - an answer that nobody foresaw, which may hold anything
                self._tell(job, f"unexpected: {type(why).__name__}")
            else:
                self._troubled.pop(job, None)
                self._at_first.discard(job)

    def first_look(self, job: str) -> bool:
        """Return whether a job was there before anybody listened, and no look at it was ever done to its end."""
        return self._at_first is not None and job in self._at_first

    def _tell(self, job: str, reason: str) -> None:
        if self._troubled.get(job) != reason:
            self._troubled[job] = reason
            log.warning("events.not_posted", job=job, what=type(self).__name__, reason=reason)

    @abstractmethod
    def post_news(self, job: str) -> None:
        """Post what is new of a job, and write down how far that is; raises OSError where it did not arrive."""
