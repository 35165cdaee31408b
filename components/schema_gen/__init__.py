"""A SchemaGen that infers a schema from the first data and stores it for later runs."""
