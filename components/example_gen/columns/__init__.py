"""Columns of raw values: how they are encoded, what is seen in them, what is known of them."""
