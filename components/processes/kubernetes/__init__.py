"""Clusters whose tasks are pods of Kubernetes."""
