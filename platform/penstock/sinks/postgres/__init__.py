"""Publish into tables of PostgreSQL."""
