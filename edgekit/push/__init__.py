"""Push: a board made ready for edgekit, and what it gets."""
