"""The internals of other libraries that this package uses; each is checked before its use."""
