"""Read what is in force: files, environment, defaults, and the project that they belong to."""
