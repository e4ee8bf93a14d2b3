"""The checkpoint: stores, the log and its fencing, the form of files, recovery. DESIGN 4 and 5."""
