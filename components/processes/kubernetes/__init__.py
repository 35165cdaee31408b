"""Clusters whose workers are pods of Kubernetes."""
