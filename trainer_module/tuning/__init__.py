"""One search for better values of a config: the space, a candidate, a trial of it."""
