"""Talk to Kafka: what its source and its sink share."""
