"""TFX Trainer's executor that trains in child processes: one, or a cluster of them."""
