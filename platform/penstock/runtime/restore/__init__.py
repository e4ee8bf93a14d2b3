"""Restore, move or export a checkpoint: changes to the log of a job that nobody runs."""
