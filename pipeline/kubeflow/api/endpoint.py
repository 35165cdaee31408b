"""Where Kubeflow Pipelines is, and with which credentials: both as kfp's own client finds them."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from pathlib import Path
from typing import Any

from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.kubeflow.api.errors import AUTHORITIES_VARIABLE, ENDPOINT_VARIABLE, TOKEN_VARIABLE
from trainer_module.errors import ConfigError

CONNECT_SECONDS, READ_SECONDS = 3, 30
"""Limits of one attempt to connect and to read; urllib3 makes several attempts."""
_POD_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def find_api(settings: KubeflowSettings) -> tuple[Any, Any]:
    """Kfp's client, with the endpoint and the credentials that it finds; makes no call.

    Args:
      settings: name the endpoint, or leave it to the environment, the cluster or kubectl's file.

    Returns:
      The client, and the connection that makes its calls.

    Raises:
      ConfigError: nothing says where the API is, or the token is not one.
    """
    # Imported where it is asked for: it takes a second and a half.
    import kfp_server_api
    from kfp.client import Client
    from kfp.client.set_volume_credentials import ServiceAccountTokenVolumeCredentials

    class QuietClient(Client):
        """Asks for no health when it is made, which would retry for half a minute and print."""

        def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
            return kfp_server_api.V2beta1GetHealthzResponse(multi_user=False)

    endpoint = settings.endpoint or os.environ.get(ENDPOINT_VARIABLE) or None
    in_pod = Path(os.environ.get("KF_PIPELINES_SA_TOKEN_PATH", _POD_TOKEN)).is_file()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        client = QuietClient(
            host=endpoint,
            existing_token=_token(),
            ssl_ca_cert=os.environ.get(AUTHORITIES_VARIABLE),
            credentials=ServiceAccountTokenVolumeCredentials() if in_pod else None,
        )
    connection = client.runs.run_service_get_run.__self__.api_client
    if endpoint is None and connection.configuration.host == kfp_server_api.Configuration().host:
        raise ConfigError(
            "kubeflow.endpoint: nothing says where Kubeflow Pipelines is: give its address, such "
            f"as http://localhost:8888 of a port-forward, here or as {ENDPOINT_VARIABLE}; inside "
            "the cluster, and where kubectl is set up, it is found without"
        )
    ask = connection.request

    def ask_within_limits(*values: Any, **options: Any) -> Any:
        return ask(*values, **options | {"_request_timeout": (CONNECT_SECONDS, READ_SECONDS)})

    # kfp's client has none, and would wait for ever for what accepts and says nothing.
    connection.request = ask_within_limits
    return client, connection


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
