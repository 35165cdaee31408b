"""The internals of other libraries that this package uses, each verified before use."""
