"""Publish into Delta tables, whoever else writes them."""
