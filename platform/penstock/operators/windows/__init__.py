"""Windows over event time: slices, their partial aggregates, and what is made of them (SEMANTICS 3)."""
