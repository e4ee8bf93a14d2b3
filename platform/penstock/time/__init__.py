"""Know the time: clocks, and how far event time is in each source."""
