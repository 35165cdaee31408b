"""The rules by which a column gets its type, one after the other, for `decision`."""
