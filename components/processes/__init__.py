"""Child processes: run, watched, limited and ended, on this machine or as pods.

`local.launcher.run_one` runs one worker to its end, `supervisor` the workers of a cluster; `worker`
is the code inside a worker. `local.fork_server` forks workers from a process with imported
libraries. `ending` ends any process in steps, `stopping` this one, and `standing_cluster` manages
servers that outlive a command.

Only `server` imports TensorFlow, when it serves.
"""
