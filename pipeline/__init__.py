"""What to run: the typed config, the TFX graph, and what runs leave behind."""
