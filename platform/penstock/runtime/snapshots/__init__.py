"""Data checkpoints: when, of what, and where their tables lie (DESIGN 5)."""
