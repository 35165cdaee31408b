"""The family `generation`: a network learns to generate pictures like those of the data."""
