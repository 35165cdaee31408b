"""The code of the user's that a config names: where it is, and what it imports."""
