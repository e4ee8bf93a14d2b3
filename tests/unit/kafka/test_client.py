"""An error of librdkafka is of one of five kinds, by who can mend it."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from penstock.kafka.client import LIBRDKAFKA, Trouble, text_of, trouble_of


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        (KafkaError.OFFSET_OUT_OF_RANGE, Trouble.GONE),
        (KafkaError._AUTO_OFFSET_RESET, Trouble.GONE),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Trouble.UNKNOWN),
        (KafkaError.SASL_AUTHENTICATION_FAILED, Trouble.REFUSED),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Trouble.REFUSED),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Trouble.REFUSED),
        (KafkaError._TRANSPORT, Trouble.AWAY),
        (KafkaError._TIMED_OUT, Trouble.AWAY),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, Trouble.BUSY),
        (KafkaError.NOT_ENOUGH_REPLICAS, Trouble.BUSY),
    ],
)
def test_an_error_is_of_one_kind(code: int, trouble: Trouble) -> None:
    """What nobody has listed counts as a broker that is away: to wait for it loses nothing."""
    assert trouble_of(KafkaError(code)) is trouble


def test_the_text_has_the_name_that_one_searches_for() -> None:
    """And what librdkafka says of it."""
    assert text_of(KafkaError(KafkaError._TIMED_OUT)) == "_TIMED_OUT: Local: Timed out"


def test_what_librdkafka_mends_by_itself_is_not_logged() -> None:
    """It would write to stderr, where a task's output goes."""
    assert not LIBRDKAFKA.isEnabledFor(logging.ERROR)
