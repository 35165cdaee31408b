"""The name by which versions that were pushed earlier say how a variant is loaded."""
