"""TFX Trainer's executor, which trains in child processes: one, or a cluster."""
