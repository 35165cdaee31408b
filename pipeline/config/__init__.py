"""The config of a pipeline: its types, its rules, and the values that follow from it alone."""
