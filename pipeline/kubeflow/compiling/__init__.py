"""A config becomes what Kubeflow Pipelines, or Vertex AI, runs."""
