"""The evaluation in batches: metrics are computed from whole batches instead of single examples."""
