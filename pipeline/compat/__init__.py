"""Other libraries' insides that pipeline relies on: each is checked when it is used."""
