"""Tell a consumer group how far a job has read, so that the usual tools show its lag.

A consumer writes the offsets that has neither a subscription nor an assignment: it joins no group and fetches nothing.
An AdminClient may crash its process where the coordinator of a group is still loading.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from penstock.kafka.admin import Offsets
from penstock.kafka.client import LIBRDKAFKA, Trouble, text_of, trouble_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

__all__ = ["GroupOffsets"]

_log = structlog.get_logger(__name__)
_LAST_SECONDS = 1.0
"""How long the end of a run waits for the brokers to take its last offsets."""
_LAST_TRIES = 2
"""The first failure then may be that of a request from before."""
_PIECE = 0.01
_EVERY_SECONDS = 1.0
"""Tools look every few seconds, and a request takes half a millisecond of a batch."""
_AFTER_A_FAILURE_SECONDS = 5.0
_WRITING = {
    "enable.auto.commit": False,
    # Of the newer protocol the brokers set the times below, and librdkafka refuses them.
    "group.protocol": "classic",
    # As long as this an offset waits for the group's coordinator, and with it the end of the process.
    "session.timeout.ms": 2_000,
    "heartbeat.interval.ms": 1_000,
}


class GroupOffsets:
    """The offsets of a consumer group, which follow those of a job; no position is ever read from them.

    There is a request a second at most, and one under way at a time. The newest offsets go with the next one. A failure
    is a warning, and no second one until a request has succeeded. All offsets are sent again five seconds later.

    Args:
        config: Settings of librdkafka for a consumer.
        group: The name of the group.
    """

    def __init__(self, config: Mapping[str, Any], group: str) -> None:
        self._config, self._group = dict(config), group
        self._wanted: Offsets = {}
        self._sent: Offsets | None = None
        self._is_warned = False
        self._next_at = 0.0
        self._failures = 0
        # A callback of this object would keep it alive, with threads and open files, until Python collects cycles.
        self._answers: deque[tuple[KafkaError | None, list[TopicPartition]]] = deque()
        self._consumer: Consumer | None = None

    def note(self, offsets: Offsets) -> None:
        """Have the group's offsets be these soon; nobody waits for the brokers."""
        self._wanted = offsets
        self._follow_when_due()

    def follow(self) -> None:
        """Send what was not sent with its batch, because that was too soon after the request before, or has failed.

        Called while the job looks for records.
        """
        self._follow_when_due()

    def end(self) -> None:
        """Wait for a second at most until the brokers have the newest offsets: no batch will write them again."""
        last = time.monotonic() + _LAST_SECONDS
        self._failures = 0
        while self._wanted and self._failures < _LAST_TRIES and time.monotonic() < last:
            self._next_at = 0.0
            self._follow(_PIECE)

    def _follow_when_due(self) -> None:
        if self._wanted and time.monotonic() >= self._next_at:
            self._follow(0)

    def _follow(self, seconds: float) -> None:
        """Take answers, and send what is wanted; where librdkafka refuses that, the job continues without its group."""
        from confluent_kafka import KafkaException

        try:
            self._hear(seconds)
            self._send()
        except KafkaException as why:
            self._warn(why.args[0])

    def _send(self) -> None:
        from confluent_kafka import TopicPartition

        if self._sent is not None or not self._wanted or time.monotonic() < self._next_at:
            return
        self._opened().commit(offsets=[TopicPartition(*at, offset) for at, offset in self._wanted.items()])
        self._sent = self._wanted
        self._next_at = time.monotonic() + _EVERY_SECONDS

    def _hear(self, seconds: float) -> None:
        """Take the answer to what was sent, if it comes within this time."""
        message = self._opened().poll(seconds)
        error = None if message is None else message.error()
        if error is not None and trouble_of(error) is Trouble.REFUSED:  # else an answer says what became of it
            self._warn(error)
        while self._answers:
            whole, partitions = self._answers.popleft()
            error = whole or next((at.error for at in partitions if at.error is not None), None)
            if error is not None:
                self._warn(error)
            else:
                self._is_warned = False
                # What is written is wanted no more, unless a newer batch has come.
                self._wanted = {} if self._wanted == self._sent else self._wanted
            self._sent = None

    def _opened(self) -> Consumer:
        if self._consumer is None:
            from confluent_kafka import Consumer

            answers = self._answers
            config = {
                **self._config,
                **_WRITING,
                "group.id": self._group,
                "on_commit": lambda error, partitions: answers.append((error, partitions)),
            }
            self._consumer = Consumer(config, logger=LIBRDKAFKA)
        return self._consumer

    def _warn(self, error: KafkaError) -> None:
        self._next_at = time.monotonic() + _AFTER_A_FAILURE_SECONDS
        self._failures += 1
        if not self._is_warned:
            _log.warning("source.group_not_written", group=self._group, why=text_of(error))
        self._is_warned = True
