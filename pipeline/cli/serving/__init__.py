"""Commands that ask a model in service, and look at what it was asked."""
