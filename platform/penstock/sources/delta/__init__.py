"""Read Delta tables by the versions of their logs."""
