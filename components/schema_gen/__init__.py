"""A SchemaGen that stores the schema inferred from the first data."""
