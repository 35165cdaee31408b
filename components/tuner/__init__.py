"""The Tuner: searches before the training, by Optuna, in processes that train as Trainer does."""
