"""CSV: its dialect and header, and what its cells are."""
