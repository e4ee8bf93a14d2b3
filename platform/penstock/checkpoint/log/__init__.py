"""The log of a job: its entries, who owns it, and what a start reads from it (DESIGN 4)."""
