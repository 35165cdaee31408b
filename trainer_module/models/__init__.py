"""The name by which a `run_fn` of the user may know what builds models; it is in `training`."""
