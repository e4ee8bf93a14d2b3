"""The user's description of a job: streams, steps, windows and policies, as frozen values that do not know Spark."""
