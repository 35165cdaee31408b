"""One run of a pipeline: executed, watched, planned and reported."""
