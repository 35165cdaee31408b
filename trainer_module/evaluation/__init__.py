"""Models evaluated while and after they train: a checkpoint, and folds."""
