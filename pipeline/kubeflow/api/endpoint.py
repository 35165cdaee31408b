"""Where Kubeflow Pipelines is, and with which credentials: both as kfp's own client finds them."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from pathlib import Path
from typing import Any

import kfp_server_api as kfp_api
from kfp.client.set_volume_credentials import ServiceAccountTokenVolumeCredentials

from pipeline.compat.kfp import EndpointFinder
from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.kubeflow.api.errors import AUTHORITIES_VARIABLE, ENDPOINT_VARIABLE, TOKEN_VARIABLE
from trainer_module.errors import ConfigError

_POD_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def find_api(settings: KubeflowSettings) -> Any:
    """A generated API client with the endpoint and the credentials that kfp finds; makes no call.

    Args:
      settings: name the endpoint, or leave it to the environment, the cluster or kubectl's file.

    Raises:
      ConfigError: nothing says where the API is, or the token is not one.
    """
    endpoint = settings.endpoint or os.environ.get(ENDPOINT_VARIABLE) or None
    in_pod = Path(os.environ.get("KF_PIPELINES_SA_TOKEN_PATH", _POD_TOKEN)).is_file()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        connection = EndpointFinder(
            host=endpoint,
            existing_token=_token(),
            ssl_ca_cert=os.environ.get(AUTHORITIES_VARIABLE),
            credentials=ServiceAccountTokenVolumeCredentials() if in_pod else None,
        ).api_client
    if endpoint is None and connection.configuration.host == kfp_api.Configuration().host:
        raise ConfigError(
            "kubeflow.endpoint: nothing says where Kubeflow Pipelines is: give its address, such "
            f"as http://localhost:8888 of a port-forward, here or as {ENDPOINT_VARIABLE}; inside "
            "the cluster, and where kubectl is set up, it is found without"
        )
    return connection


def _token() -> str | None:
    """The token of the environment.

    Text that cannot be a token is refused here: the HTTP library's error would show it.
    """
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(f"{TOKEN_VARIABLE}: this is no token; one has no spaces in it")
    return token or None


def user_namespace(settings: KubeflowSettings) -> str:
    """The user's namespace, where there are several.

    Raises:
      ConfigError: nothing names it.
    """
    if settings.namespace is not None:
        return settings.namespace
    if _POD_NAMESPACE.is_file():
        return _POD_NAMESPACE.read_text().strip()
    raise ConfigError(
        "kubeflow.namespace: this Kubeflow Pipelines has several users, each with a namespace; "
        "name yours"
    )
