"""Post what happens to streams to those who listen, job by job, and again until it has arrived."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import structlog

from penstock.checkpoint.store import CheckpointStore
from penstock.errors import PenstockError
from penstock.supervise.records import supervised_jobs

__all__ = ["Poster"]

log = structlog.get_logger()


@dataclass(kw_only=True)
class Poster(ABC):
    """Post the news of the streams of one control root; `look` is called every few seconds."""

    store: CheckpointStore
    _troubled: dict[str, str] = field(default_factory=dict)

    def look(self) -> None:
        """Post what is new; what cannot be posted now is told once, and posted later."""
        for job in supervised_jobs(self.store):
            try:
                self.post_news(job)
            except (PenstockError, OSError) as why:
                if self._troubled.get(job) != str(why):
                    self._troubled[job] = str(why)
                    log.warning("events.not_posted", job=job, what=type(self).__name__, reason=str(why))
            else:
                self._troubled.pop(job, None)

    @abstractmethod
    def post_news(self, job: str) -> None:
        """Post what is new of a job, and write down how far that is; raises OSError where it did not arrive."""
