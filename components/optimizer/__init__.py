"""The Optimizer: makes smaller and faster variants of a model, and measures them before a push."""
