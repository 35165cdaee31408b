"""The commands of local_runner.py and kubeflow_runner.py."""
