"""Turn steps into work on rows and state: the pure core of each operator, one noun a file, without Spark."""
