"""Read how a job stands, from outside: nothing is owned, and nothing written."""
