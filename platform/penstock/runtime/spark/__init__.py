"""Spark: its session, its workers, its errors, and the engine that computes batches on it."""
