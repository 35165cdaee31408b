"""Processes that others start: run, watched, limited and ended, here or as pods.

`local.launcher.run_one` runs one worker to its end, `supervisor` those of a cluster; `worker` is
their own side. `local.fork_server` forks them off what has their imports already. `ending` ends any
process in order, `stopping` this one, and `standing_cluster` keeps servers that outlive a command.
TensorFlow is imported by `server` alone, once it serves.
"""
