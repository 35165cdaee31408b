"""The steps of a run, one container each: set-up, one step for each TFX node, and the end."""
