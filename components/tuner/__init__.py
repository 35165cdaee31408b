"""The Tuner: a hyperparameter search with Optuna, in child processes, before the training."""
