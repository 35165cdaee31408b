"""Data that comes in spans: how a path names them, and which of them ExampleGen reads."""
