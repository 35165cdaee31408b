"""Tools for developers and CI, which are not part of the product."""
