"""Where the Kubernetes API is, and as whom it is called."""

from __future__ import annotations

import os
from pathlib import Path

import yaml
from kubernetes import client, config

from trainer_module.errors import ConfigError

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def configure(configuration: client.Configuration) -> str:
    """Fills in where the server is and who asks.

    Args:
      configuration: changed in place.

    Returns:
      The namespace: that of this pod, or of the kubeconfig.

    Raises:
      ConfigError: this process runs in no cluster, and no kubeconfig describes one.
    """
    try:
        if os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=configuration)
            configuration.proxy = None  # The server is inside of the cluster.
            return _NAMESPACE_FILE.read_text().strip()
        # The client has read the variable when it was imported, which may have been too early.
        file = os.environ.get("KUBECONFIG") or None
        config.load_kube_config(file, client_configuration=configuration)
        _, context = config.list_kube_config_contexts(file)
        return context["context"].get("namespace") or "default"
    except (config.ConfigException, yaml.YAMLError, OSError) as error:
        raise ConfigError(
            "train.cluster.launcher is kubernetes, but this process neither runs in a cluster nor "
            f"does KUBECONFIG lead to one ({str(error).rstrip('.')}); compile the pipeline with "
            "kubeflow_runner.py, or use the launcher local."
        ) from None
