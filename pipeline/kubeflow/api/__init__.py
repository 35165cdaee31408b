"""The API of Kubeflow Pipelines: runs and recurring runs are started, followed and shown."""
