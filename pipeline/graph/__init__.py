"""The pipeline as a graph of TFX components."""
