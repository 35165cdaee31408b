"""Masks the credentials of the URIs in a text that others read."""

from __future__ import annotations

import re

_REST = re.compile(r"(?<=\w)://\S+")
"""A URI without its scheme, for which a search would take seconds in long words."""
_USER = re.compile(r"(?<=://)[^/\s]+(?=@)")
"""The user and the password. Passwords may contain @."""
_PARAMETER = re.compile(r"([?&#;][\w.~%$[\]-]+=)[^&#;\s'\"]*[^&#;\s'\":,.)]")
"""A parameter of a query or a fragment, such as a signature. The wildcard ? has no name and no
value."""
_HIDDEN = "***"


def mask_credentials(text: str) -> str:
    """Returns a text in which the user, the password and the values of parameters of each URI are
    `***`.
    """
    return _REST.sub(lambda uri: _PARAMETER.sub(rf"\1{_HIDDEN}", _USER.sub(_HIDDEN, uri[0])), text)
