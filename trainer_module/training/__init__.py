"""The training of networks: loops, callbacks, checkpoints, optimizers and compression."""
