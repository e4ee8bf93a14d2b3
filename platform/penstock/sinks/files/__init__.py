"""Publish files into a folder, each batch once, with a manifest of what was published."""
