"""Keep streams running: what is wanted of each, what runs, and the steps between the two (DESIGN 11)."""
