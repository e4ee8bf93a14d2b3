"""Take rows that senders push, and keep them before the sender is acknowledged."""

from penstock.receivers.receiver import Receiver

__all__ = ["Receiver"]
