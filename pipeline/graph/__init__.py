"""The pipeline as TFX components, wired in the order in which the data flows."""
