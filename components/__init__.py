"""TFX components of our own."""
