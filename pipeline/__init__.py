"""The config and its checks, the TFX graph, and the commands and records of runs."""
