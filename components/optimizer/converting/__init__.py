"""Conversions of an exported model to other runtimes, each in a process of its own."""
