"""The code of Spark's tasks: rows, state, side outputs and staged files of one partition."""
