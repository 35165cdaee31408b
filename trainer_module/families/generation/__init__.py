"""The family `generation`: a network learns to make pictures that look like those of the data."""
