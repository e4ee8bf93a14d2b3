"""Go back to a checkpoint, move it, export it: what changes a log for a job that nobody runs."""
