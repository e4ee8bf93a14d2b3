"""Take rows that senders push, and keep them before the sender is acknowledged."""
