"""All ways of asking a model, of which a certificate says that they agree."""
