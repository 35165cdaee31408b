"""The Evaluator: TFMA's metrics, further metrics, and the conditions for blessing a model."""
