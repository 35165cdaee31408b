"""Files of requests that a model has answered: which of their columns are no data.

`serve --log-requests` writes them beside the columns that the model asked for. ExampleGen leaves
them out, as a model must not learn from what another one answered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

OWN_COLUMNS_KEY = b"scopeline.own_columns"
"""In the metadata of a Parquet file's schema: the names, as JSON."""
REQUEST_ID = "request_id"
"""Tells rows apart: the id of the request, and of several rows the place as well, `id/0`."""
REQUEST_TIME = "request_time"
MODEL_VERSION = "model_version"
ANSWER = "answer_"
"""What the names of the columns with the answers begin with."""


def mark_own(columns: Iterable[str]) -> dict[bytes, bytes]:
    """The metadata that `read_own` reads."""
    return {OWN_COLUMNS_KEY: json.dumps(list(columns)).encode()}


def read_own(metadata: Mapping[bytes, bytes] | None) -> frozenset[str]:
    """The columns of a file that are no data; none of a file that no server has written."""
    return frozenset(json.loads((metadata or {}).get(OWN_COLUMNS_KEY, b"[]")))
