"""Which rows go to which split: by a hash, or by an order within classes or time."""
