"""Other libraries' insides: each is checked before it is used."""
