"""The Tuner: a hyperparameter search with Optuna before the training, in processes like the
Trainer's.
"""
