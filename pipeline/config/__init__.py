"""The config of a pipeline: its types, its rules, and values derived from the config alone."""
