"""The TFX components of our own."""
