"""The search for better settings: the search space, the plan of the search, and its trials."""
