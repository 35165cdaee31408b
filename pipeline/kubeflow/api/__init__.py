"""The client side of Kubeflow Pipelines: starts, follows and shows runs and recurring runs."""
