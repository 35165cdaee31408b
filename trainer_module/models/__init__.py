"""Modules of networks by the names of earlier versions, for users' code."""
