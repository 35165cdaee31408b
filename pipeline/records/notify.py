"""Sends notifications about the results of runs, by webhook and by mail.

A failed delivery never fails a run. Each delivery runs in a separate thread, so that it delays only
the end of the process, which has to call `wait_for_deliveries`. A failed delivery is logged and
recorded in the event log. Messages contain only the host of a URL, as path and query may be
secrets.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import smtplib
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from email.message import EmailMessage
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urlsplit

from pipeline.config.sections.notify import (
    WEBHOOK_URL,
    EmailSettings,
    NotifySettings,
    Occasion,
    WebhookSettings,
    read_secret,
    shown_name,
)
from pipeline.records.event_log import EventKind, EventLog
from trainer_module.errors import ConfigError, shorten

SIGNATURE_HEADER = "X-Scopeline-Signature"
SMTP_PORT = 25
CONNECT_SECONDS = 3.0
READ_SECONDS = 5.0
"""The time limit between two packets of a response, in seconds."""
DEADLINE_SECONDS = 15.0
"""The time limit of a delivery, including the second attempt, in seconds."""
RETRY_SECONDS = 1.0
"""The wait before the second attempt, in seconds."""

logger = logging.getLogger(__name__)
_deliveries: SimpleQueue[threading.Thread] = SimpleQueue()


class _UndeliveredError(Exception):
    """A failed delivery; the message contains no secret."""

    def __init__(self, reason: str, retry: bool = False) -> None:
        """Stores the reason of the failure.

        Args:
          reason: the reason, without secrets.
          retry: whether a second attempt may succeed.
        """
        super().__init__(reason)
        self.retry = retry


def check_secrets(settings: NotifySettings, occasion: Occasion | None = None) -> None:
    """Checks that the environment variables with secrets for notifications are set.

    Args:
      settings: the receivers and occasions.
      occasion: the only occasion for which the command may send notifications; default: all.

    Raises:
      ConfigError: an environment variable that the config names is unset or empty.
    """
    occasions = settings.occasions
    if not occasions or (occasion is not None and occasion not in occasions):
        return
    for key, variable in settings.variables.items():
        if read_secret(variable) is None:
            raise ConfigError(
                f"{key}: the environment variable {shown_name(variable)} is not set, or is empty; "
                "set the variable where the pipeline runs (on Kubeflow with kubeflow.secrets), "
                "remove this key, or turn notifications off with --set notify.occasions=[]"
            )
    if (webhook := settings.webhook) is not None:
        try:
            _url(webhook)
        except _UndeliveredError as error:
            raise ConfigError(f"notify.webhook.url_variable: {error}") from None


def notify(
    settings: NotifySettings,
    pipeline: str,
    occasion: Occasion,
    message: str,
    details: dict[str, Any],
    event_log: EventLog,
    run: str | None = None,
) -> None:
    """Starts the delivery of a notification to all receivers in threads; never raises.

    Args:
      settings: the receivers and occasions.
      occasion: the occasion; nothing is sent if `notify.occasions` does not contain it.
      message: a sentence for people.
      details: values for programs.
      event_log: the event log of the pipeline, which records failed deliveries.
      run: the id of the run; None outside of runs.
    """
    if occasion not in settings.occasions:
        return
    content = {
        "pipeline": pipeline,
        "occasion": occasion.value,
        "message": message,
        "run": run,
        "at": datetime.now().astimezone().isoformat(timespec="seconds"),
        "details": details,
    }
    if (webhook := settings.webhook) is not None:
        _begin(_host(webhook), lambda: _post(webhook, content), occasion, event_log, run)
    if (email := settings.email) is not None:
        recipient = f"the mail server {email.server}"
        _begin(recipient, lambda: _send(email, content), occasion, event_log, run)


@contextmanager
def deliveries() -> Iterator[None]:
    """Waits on exit for all deliveries of the process; the result is also a decorator."""
    try:
        yield
    finally:
        wait_for_deliveries()


def wait_for_deliveries() -> None:
    """Waits for all started deliveries; each ends within its time limit."""
    with suppress(Empty):
        while True:
            _deliveries.get_nowait().join()


def _begin(
    recipient: str,
    attempt: Callable[[], None],
    occasion: Occasion,
    event_log: EventLog,
    run: str | None,
) -> None:
    """Starts a delivery in a separate thread, which records a failure."""

    def deliver() -> None:
        _conclude(_attempt_twice(attempt), recipient, occasion, event_log, run)

    thread = threading.Thread(target=deliver, name="notify", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # The process cannot start more threads.
        _conclude(str(error), recipient, occasion, event_log, run)
    else:
        _deliveries.put(thread)


def _conclude(
    reason: str | None, recipient: str, occasion: Occasion, event_log: EventLog, run: str | None
) -> None:
    """Logs the end of a delivery; records a failure, which has a reason."""
    if reason is None:
        logger.info("Sent the notification %r to %s", occasion.value, recipient)
        return
    sentence = f"{recipient} did not receive {occasion.value!r}: {reason}"
    logger.warning("A notification could not be delivered: %s", sentence)
    try:
        event_log.record(EventKind.NOTIFICATION_FAILED, sentence, run=run, occasion=occasion.value)
    except Exception:
        logger.exception("The failed notification could not be recorded")


def _attempt_twice(attempt: Callable[[], None]) -> str | None:
    """Attempts a delivery at most twice within its time limit; returns the reason for a failure.

    The attempts run in another thread, which is abandoned after the time limit: a socket's timeout
    restarts with every byte, so that a slow server could block the thread forever.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    failures: list[str] = []

    def deliver() -> None:
        for is_last in (False, True):
            failure, may_retry = _attempt(attempt)
            if failure is None:
                failures.clear()
                return
            failures[:] = [failure]
            if is_last or not may_retry or time.monotonic() + RETRY_SECONDS > deadline:
                return
            time.sleep(RETRY_SECONDS)

    thread = threading.Thread(target=deliver, name="notify", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # The process cannot start more threads.
        return str(error)
    thread.join(max(0.0, deadline - time.monotonic()))
    if thread.is_alive():
        return f"no complete response within {DEADLINE_SECONDS:g} s"
    return failures[0] if failures else None


def _attempt(attempt: Callable[[], None]) -> tuple[str | None, bool]:
    """Returns the reason why an attempt failed, or None, and whether a retry may succeed."""
    try:
        attempt()
    except _UndeliveredError as error:
        return str(error), error.retry
    except OSError as error:  # The errors of requests and smtplib are OSErrors, too.
        return _explain_error(error)
    except Exception as error:
        # The message is not shown, as it may contain the content or the URL.
        return f"{type(error).__name__}; check the section notify of the config", False
    return None, False


def _explain_error(error: OSError) -> tuple[str, bool]:
    """Returns the reason of a failure without a URL, and whether a retry may succeed."""
    if (explanation := _explain_response(error)) is not None:
        return explanation
    for cause in _causes(error):
        if isinstance(cause, TimeoutError):
            return "no response in time", True
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror, True
    return f"{type(error).__name__}", True


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error, then its chain of causes."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


def _url(webhook: WebhookSettings) -> str:
    """Returns the URL of a webhook.

    Raises:
      _UndeliveredError: the environment variable contains no URL.
    """
    if webhook.url_variable is None:
        return webhook.url or ""
    url = os.environ.get(webhook.url_variable, "")
    try:
        return WEBHOOK_URL.check(url)
    except ValueError as error:
        variable = shown_name(webhook.url_variable)
        raise _UndeliveredError(
            f"the environment variable {variable} contains no URL: {error}"
        ) from None


def _host(webhook: WebhookSettings) -> str:
    """Returns the host of a webhook, without user, path and query, which may be secrets."""
    try:
        parts = urlsplit(_url(webhook))
        port = "" if parts.port is None else f":{parts.port}"
    except (_UndeliveredError, ValueError):
        return "the webhook"
    # An `@` after the host belongs to a password with characters that are not escaped.
    may_show_password = "@" in parts.path + parts.query + parts.fragment and not parts.username
    return "the webhook" if may_show_password else f"the webhook at {parts.hostname}{port}"


def _secret(variable: str, purpose: str) -> str:
    """Returns the secret in an environment variable.

    Raises:
      _UndeliveredError: the variable is not set, or is empty.
    """
    secret = read_secret(variable)
    if secret is None:
        raise _UndeliveredError(
            f"the environment variable {shown_name(variable)} with {purpose} is not set, or is "
            "empty, and nothing is sent without it"
        )
    return secret


def _post(webhook: WebhookSettings, content: dict[str, Any]) -> None:
    import requests  # The import is here, as only webhooks need it.

    body = json.dumps(content, default=str).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "scopeline"}
    if webhook.secret_variable:
        key = _secret(webhook.secret_variable, "the key of the signature")
        digest = hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
        headers[SIGNATURE_HEADER] = f"sha256={digest}"
    with requests.post(
        _url(webhook),
        data=body,
        headers=headers,
        timeout=(CONNECT_SECONDS, READ_SECONDS),
        # Another host must not receive the content, and a redirected POST becomes a GET.
        allow_redirects=False,
        # Only the status is read, as the body may be endless.
        stream=True,
    ) as response:
        status = response.status_code
    if 300 <= status < 400:
        raise _UndeliveredError(
            f"the response is {status}, a redirection; write the URL of its target"
        )
    if status >= 400:
        raise _UndeliveredError(f"the response is {status}", retry=status >= 500 or status == 429)


def _send(email: EmailSettings, content: dict[str, Any]) -> None:
    """Sends the content of a notification by mail.

    Raises:
      OSError: the mail was not sent to all addresses; `_explain_response` describes the response.
    """
    mail = _compose(email, content)
    variable = email.password_variable
    password = None if variable is None else _secret(variable, "the user's password")
    parts = urlsplit(f"//{email.server}")
    host, port = parts.hostname or "", parts.port or SMTP_PORT
    with smtplib.SMTP(host, port, timeout=READ_SECONDS) as server:
        if email.tls:
            server.starttls(context=ssl.create_default_context())
        if email.user is not None and password is not None:
            server.login(email.user, password)
        refused = server.send_message(mail)
    if refused:  # The error allows no second attempt, as other addresses have the mail.
        raise smtplib.SMTPRecipientsRefused(refused)


def _explain_response(error: OSError) -> tuple[str, bool] | None:
    """Returns the response of a mail server in an error, and whether a retry may succeed.

    None if the error contains no response.
    """
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"the server refuses the login ({error.smtp_code})", False
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return _refused(error.recipients), False
    if isinstance(error, smtplib.SMTPResponseException):
        response = error.smtp_error
        text = response.decode(errors="replace") if isinstance(response, bytes) else response
        sentence = f"the response is {error.smtp_code} {shorten(text)}"
        return sentence, error.smtp_code < 500
    if isinstance(error, (smtplib.SMTPNotSupportedError, smtplib.SMTPServerDisconnected)):
        return str(error), isinstance(error, smtplib.SMTPServerDisconnected)
    return None


def _compose(email: EmailSettings, content: dict[str, Any]) -> EmailMessage:
    mail = EmailMessage()
    occasion = str(content["occasion"]).replace("_", " ")
    mail["Subject"] = f"{content['pipeline']}: {occasion}"
    mail["From"] = email.sender
    mail["To"] = ", ".join(email.to)
    details = json.dumps(content["details"], default=str, indent=2, ensure_ascii=False)
    mail.set_content(
        f"{content['message']}\n\npipeline: {content['pipeline']}\nrun: {content['run'] or '-'}\n"
        f"at: {content['at']}\n\n{details}\n"
    )
    return mail


def _refused(recipients: dict[str, tuple[int, bytes]]) -> str:
    addresses = (
        f"{to} ({code} {text.decode(errors='replace')})" for to, (code, text) in recipients.items()
    )
    return f"the server refuses the addresses {', '.join(addresses)}"
