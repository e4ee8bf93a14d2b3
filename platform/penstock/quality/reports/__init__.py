"""Report on windows that were published: Great Expectations itself over a Delta table, and pages of what it found."""
