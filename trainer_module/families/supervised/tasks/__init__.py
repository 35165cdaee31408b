"""The supervised tasks: what a label is, and what a model makes of it."""
