"""The steps of a run, one container each: set-up, one step per TFX node, and the end."""
