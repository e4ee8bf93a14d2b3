"""Turn a graph into the one Spark job of a batch."""
