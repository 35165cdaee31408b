"""The versions of a pipeline's model: list, roll back, withdraw, approve and delete."""
