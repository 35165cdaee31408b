"""Families of tasks: what is learnt, from what, and how it is judged."""
