"""The metrics of an evaluation, added up by whole batches instead of example by example."""
