"""Dates and times: how they are written, and what a calendar says of them."""
