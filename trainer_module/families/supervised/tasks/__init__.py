"""The supervised tasks: their labels, outputs, losses and metrics."""
