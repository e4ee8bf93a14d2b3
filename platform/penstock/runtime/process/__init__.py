"""The driver as a process: its start, signals, heartbeat and end."""
