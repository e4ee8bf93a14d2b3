"""Schemas of Avro, the columns that they are, and registries of them: what sources and sinks share."""
