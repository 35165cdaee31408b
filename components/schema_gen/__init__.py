"""A SchemaGen that keeps what it inferred from the first data."""
