"""Running the pipeline on Kubeflow Pipelines: compile, submit, follow and schedule."""
