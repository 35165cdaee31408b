"""Requests that were served, compared with what the model in service was trained on."""
