"""Modules of variants by the names of earlier versions, for users' code."""
