"""The networks of supervised tasks."""
