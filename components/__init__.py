"""The TFX components of this project."""
