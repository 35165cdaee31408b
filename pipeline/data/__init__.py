"""The location of a pipeline's data, and the spans in it."""
