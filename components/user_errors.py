"""Finds the error for the user in an exception of Beam, TFX or a worker."""

from __future__ import annotations

import re

from trainer_module import errors
from trainer_module.errors import DriftError, ScopelineError

# Beam appends the name of the step to a message.
_STEP = r" \[while running '[^\n]*"
# TensorFlow escapes line ends and quotation marks in the message of an assertion.
_END = rf"{_STEP}|\n|\\n|$"
_IN_TRACEBACK = re.compile(rf"{re.escape(errors.__name__)}\.(\w+): ([^\n]*?)(?={_END})")


def find_user_error(exception: BaseException) -> ScopelineError | None:
    """Returns the ScopelineError that has caused an exception, with its original message, or None.

    The function first searches `__cause__` and `__context__`. As Beam and other libraries convert
    the exceptions of their workers to text, it then searches the messages for the last
    ScopelineError in a traceback.
    """
    chain = _chain(exception)
    for link in chain:
        if isinstance(link, ScopelineError):
            return type(link)(re.sub(_STEP, "", str(link)))
    for link in chain:
        for name, message in reversed(_IN_TRACEBACK.findall(str(link))):
            kind = getattr(errors, name, None)
            if isinstance(kind, type) and issubclass(kind, ScopelineError):
                return kind(message.replace("\\'", "'"))
    return None


def is_drift(error: BaseException) -> bool:
    """Returns whether the only cause of an error is that the data has drifted."""
    return isinstance(error, Exception) and isinstance(find_user_error(error), DriftError)


def _chain(exception: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    waiting: list[BaseException | None] = [exception]
    while waiting:
        link = waiting.pop(0)
        if link is not None and link not in chain:
            chain.append(link)
            waiting += [link.__cause__, link.__context__]
    return chain
