"""What the YAML file may say: its types, its rules, and what is derived from it alone."""
