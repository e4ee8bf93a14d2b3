"""Read the state of a job from outside: nothing is owned, and nothing written."""
