"""Know the time: clocks, ticks, and where rows have arrived."""
