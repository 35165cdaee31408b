"""The same pipeline on Kubeflow Pipelines: compiled, submitted, followed and scheduled."""
