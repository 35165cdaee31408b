"""The conversions of an exported model to other runtimes, which run in child processes."""
