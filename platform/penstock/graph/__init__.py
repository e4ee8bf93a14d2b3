"""Hold what the user says: jobs, streams, steps, windows and policies, as frozen values that know nothing of Spark."""
