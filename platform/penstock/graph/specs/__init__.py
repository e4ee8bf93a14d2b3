"""One module for each operator: what a job says of it, and the methods of streams that say so."""
