"""Sort the errors of librdkafka by who can mend them; the source and the sink raise their own errors for each kind."""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

__all__ = ["LIBRDKAFKA", "Trouble", "text_of", "trouble_of"]

LIBRDKAFKA = logging.getLogger("librdkafka")
"""It would write to stderr, also what it mends by itself."""
LIBRDKAFKA.setLevel(logging.ERROR + 1)


class Trouble(Enum):
    """Kinds of errors, by who can mend them."""

    GONE = "the offsets are gone"
    REFUSED = "the brokers refuse the user, or a setting"
    UNKNOWN = "there is no such topic"
    BUSY = "the brokers answer that they cannot do it yet"
    AWAY = "the brokers do not answer"


def trouble_of(error: KafkaError) -> Trouble:
    """Return the kind of an error; one that is not known counts as a broker that is away, as waiting harms nothing."""
    from confluent_kafka import KafkaError as Codes

    code = error.code()
    if code in {Codes._AUTO_OFFSET_RESET, Codes.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001 - librdkafka names its own so
        return Trouble.GONE
    if code in {Codes.UNKNOWN_TOPIC_OR_PART, Codes._UNKNOWN_TOPIC, Codes._UNKNOWN_PARTITION}:  # noqa: SLF001 - as above
        return Trouble.UNKNOWN
    if code in {
        Codes.NOT_ENOUGH_REPLICAS, Codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Codes.COORDINATOR_LOAD_IN_PROGRESS, Codes.COORDINATOR_NOT_AVAILABLE, Codes.NOT_COORDINATOR,
        Codes.CONCURRENT_TRANSACTIONS, Codes.UNSTABLE_OFFSET_COMMIT, Codes.THROTTLING_QUOTA_EXCEEDED,
    }:  # fmt: skip
        return Trouble.BUSY
    refused = {
        Codes._AUTHENTICATION, Codes.SASL_AUTHENTICATION_FAILED, Codes.TOPIC_AUTHORIZATION_FAILED,  # noqa: SLF001
        Codes.CLUSTER_AUTHORIZATION_FAILED, Codes.GROUP_AUTHORIZATION_FAILED, Codes._INVALID_ARG,  # noqa: SLF001
        Codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }  # fmt: skip
    return Trouble.REFUSED if code in refused else Trouble.AWAY


def text_of(error: KafkaError) -> str:
    """Return the name of an error and what librdkafka says of it."""
    return f"{error.name()}: {error.str()}"
