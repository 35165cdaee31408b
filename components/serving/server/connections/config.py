"""How uvicorn serves an application of ours."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import uvicorn

from components.compat.uvicorn import check_uvicorn
from components.serving.server.connections.connection import ClientConnection, OpenConnections
from components.serving.server.connections.quick import Application
from components.serving.server.options import ServeOptions


def make_config(application: Application, options: ServeOptions, **settings: Any) -> uvicorn.Config:
    """Uvicorn's settings.

    Args:
      application: answers.
      options: have the files of TLS, and the limits of connections.
      settings: others than those that all servers of ours share.

    Raises:
      InternalError: uvicorn begins to answer in another way.
    """
    check_uvicorn()
    others = OpenConnections(options.connections)
    return uvicorn.Config(
        application.asgi,
        http=cast(Any, partial(ClientConnection, application.quick, others)),
        ws="none",
        loop="uvloop",
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=options.keep_alive_seconds,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.private_key,
        **settings,
    )
