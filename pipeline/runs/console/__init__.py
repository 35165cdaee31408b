"""A run as people see it: its progress, its outcome, and the tables of trials and variants."""
