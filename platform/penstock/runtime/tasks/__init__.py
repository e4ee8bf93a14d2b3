"""What runs in Spark's tasks: rows, state, side outputs and staged files of one partition."""
