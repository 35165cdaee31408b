"""The Trainer, which trains in one child process or in a cluster of processes."""
