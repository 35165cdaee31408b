"""Vocabularies of columns, from how often their values occur, and the classes of the label."""
