"""Where a pipeline's data is, and which spans of it there are."""
