"""Publish into Delta tables that other programs may write too."""
