"""The typed config, the TFX graph, and the records that runs leave behind."""
