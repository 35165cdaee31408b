"""The page at `/`: a constant file, which is the same for all models.

The page reads `/openapi.json`, makes a form from it and sends `:predict` requests, with the API key
that the user types. It can therefore do nothing that other clients cannot do, and contains nothing
about the model. Its script writes names and values only as text, never as HTML.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib.resources import files

from components import pages
from components.serving.server.replies import Reply

_FILES = files(__name__.rpartition(".")[0])


@functools.cache
def make_page() -> Reply:
    """Returns the page, whose policy allows only its own style and script, and this server."""
    style = (files(pages) / "templates" / "base.css").read_text("utf-8") + _read("page.css")
    script = _read("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)};"
        " connect-src 'self'; img-src data:; form-action 'none'; base-uri 'none';"
        " frame-ancestors 'none'"
    )
    text = _read("page.html").replace("STYLE", style).replace("SCRIPT", script)
    headers = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-cache",
    }
    encoded = tuple((name.encode(), value.encode()) for name, value in headers.items())
    return Reply(text.encode(), b"text/html; charset=utf-8", encoded)


def _read(name: str) -> str:
    return (_FILES / name).read_text("utf-8")


def _hash(text: str) -> str:
    """Returns the source expression of an inline style or script (Content Security Policy 3)."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
