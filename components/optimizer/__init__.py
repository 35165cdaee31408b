"""The Optimizer: smaller and faster variants of a model, each measured before it is pushed."""
