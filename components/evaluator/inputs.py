"""The names of Evaluator's inputs that stock's does not have; resolvers find what they hold."""

BASELINE_EXAMPLES_KEY = "baseline_examples"
"""The Examples that the model in service has learnt from, as they were read."""
LEARNT_EXAMPLES_KEY = "learnt_examples"
"""The Examples that the new model has learnt from, as they were read."""
