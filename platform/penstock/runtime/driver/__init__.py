"""The driver loop: plan a batch, compute it, commit it, publish it (DESIGN 4)."""
