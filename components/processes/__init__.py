"""Child processes, which run on this machine or as pods.

- `local.launcher.run_one` runs a single worker until the worker ends.
- `supervisor` runs the workers of a cluster.
- `worker` is the code inside a worker.
- `local.fork_server` forks workers from a process that has imported libraries.
- `ending` ends any process in steps, and `stopping` handles signals that stop this process.
- `standing_cluster` manages servers that outlive the command that starts them.

Of these modules, only `server` imports TensorFlow, when it serves.
"""
