"""Connections of clients, of which requests for predictions are answered without ASGI."""
