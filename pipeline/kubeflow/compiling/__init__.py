"""A config becomes what Kubeflow Pipelines runs."""
