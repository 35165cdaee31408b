"""The SavedModel that is evaluated, served and pushed: raw examples in, named predictions out."""
