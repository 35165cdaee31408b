"""Tools for developers and CI; they are not part of the product."""
