"""The log of requests and their predictions. A config can read the log as spans of data."""
