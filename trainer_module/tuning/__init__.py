"""The search for better settings: the search space, the candidates and the trials."""
