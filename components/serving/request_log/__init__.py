"""The log of requests and answers, written as spans that a later config can read."""
