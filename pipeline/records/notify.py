"""Notifies people and programs of the outcome of runs, by webhook and by mail.

A failed delivery never fails a run. Deliveries run in threads of their own and delay only the end
of the process, which has to call `wait_for_deliveries`. A failure is logged, and recorded in the
event log. Both show only the host of a URL, since its path or query may be a secret.
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
"""The longest pause between two packets of a server."""
DEADLINE_SECONDS = 15.0
"""The time limit of a delivery, second attempt included."""
RETRY_SECONDS = 1.0
"""The wait before the second attempt."""

logger = logging.getLogger(__name__)
_under_way: SimpleQueue[threading.Thread] = SimpleQueue()


class _UndeliveredError(Exception):
    """A failed delivery; the message contains no secret."""

    def __init__(self, why: str, again: bool = False) -> None:
        """Stores the reason of the failure.

        Args:
          why: the reason, without secrets.
          again: whether a second attempt may succeed.
        """
        super().__init__(why)
        self.again = again


def check_secrets(settings: NotifySettings, occasion: Occasion | None = None) -> None:
    """Checks that the secrets for notifications are set, before anything is changed.

    Args:
      settings: the receivers and occasions.
      occasion: the only occasion that can happen; default: any.

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
                "set it where the pipeline runs, on Kubeflow by kubeflow.secrets, or remove the "
                "key; --set notify.occasions=[] turns notifications off"
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
    """Starts the notifications of webhook and mail addresses in threads; never raises.

    Args:
      settings: the receivers and occasions.
      pipeline: the name of the pipeline.
      occasion: the occasion; nothing is sent if the config does not name it.
      message: a sentence for people.
      details: values for programs.
      event_log: the event log of the pipeline; failed deliveries are recorded there.
      run: the id of the run.
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
    """Waits on exit for the deliveries that began within the block; also a decorator."""
    try:
        yield
    finally:
        wait_for_deliveries()


def wait_for_deliveries() -> None:
    """Waits for all deliveries that have begun: each ends by its deadline."""
    with suppress(Empty):
        while True:
            _under_way.get_nowait().join()


def _begin(
    recipient: str,
    attempt: Callable[[], None],
    occasion: Occasion,
    event_log: EventLog,
    run: str | None,
) -> None:
    """Starts a delivery in a thread of its own."""
    arguments = (recipient, attempt, occasion, event_log, run)
    thread = threading.Thread(target=_deliver, args=arguments, name="notify", daemon=True)
    thread.start()
    _under_way.put(thread)


def _deliver(
    recipient: str,
    attempt: Callable[[], None],
    occasion: Occasion,
    event_log: EventLog,
    run: str | None,
) -> None:
    """Attempts a delivery at most twice and within the deadline; records a failure."""
    try:
        why = _attempt_twice(attempt)
    except RuntimeError as error:  # No more threads can be started.
        why = str(error)
    if why is None:
        logger.info("Notified of %r: %s", occasion.value, recipient)
        return
    sentence = f"{recipient} did not receive {occasion.value!r}: {why}"
    logger.warning("A notification could not be delivered: %s", sentence)
    try:
        event_log.record(EventKind.NOTIFICATION_FAILED, sentence, run=run, occasion=occasion.value)
    except Exception:
        logger.exception("The failed notification could not be recorded")


def _attempt_twice(attempt: Callable[[], None]) -> str | None:
    """Returns the reason why a delivery failed; None on success.

    The attempts run in a thread of their own, which is abandoned after the deadline: a socket's
    timeout restarts with every byte, so a slow server could hold it forever.
    """
    ends = time.monotonic() + DEADLINE_SECONDS
    failures: list[str] = []

    def deliver() -> None:
        for is_last in (False, True):
            failure, again = _attempt(attempt)
            if failure is None:
                failures.clear()
                return
            failures[:] = [failure]
            if is_last or not again or time.monotonic() + RETRY_SECONDS > ends:
                return
            time.sleep(RETRY_SECONDS)

    thread = threading.Thread(target=deliver, name="notify", daemon=True)
    thread.start()
    thread.join(max(0.0, ends - time.monotonic()))
    if thread.is_alive():
        return f"no complete answer within {DEADLINE_SECONDS:g} s"
    return failures[0] if failures else None


def _attempt(attempt: Callable[[], None]) -> tuple[str | None, bool]:
    """Returns the reason why an attempt failed, or None, and whether another may succeed."""
    try:
        attempt()
    except _UndeliveredError as error:
        return str(error), error.again
    except OSError as error:  # The errors of requests and smtplib are OSErrors, too.
        return _explain(error)
    except Exception as error:
        # The text may contain the content or the URL, and is not shown.
        return f"{type(error).__name__}; check its settings in the config", False
    return None, False


def _explain(error: OSError) -> tuple[str, bool]:
    """Returns the reason of a failure without a URL, and whether another attempt may succeed."""
    if (answer := _explain_answer(error)) is not None:
        return answer
    for cause in _causes(error):
        if isinstance(cause, TimeoutError):
            return "no answer in time", True
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
    # An `@` after the host means a password with characters that should have been escaped.
    is_odd = "@" in parts.path + parts.query + parts.fragment and not parts.username
    return "the webhook" if is_odd else f"the webhook at {parts.hostname}{port}"


def _secret(variable: str, purpose: str) -> str:
    """Returns the secret in an environment variable.

    Raises:
      _UndeliveredError: there is none; nothing is sent without it.
    """
    secret = read_secret(variable)
    if secret is None:
        raise _UndeliveredError(
            f"the environment variable {shown_name(variable)} with {purpose} is not set, or is "
            "empty, and nothing is sent without it"
        )
    return secret


def _post(webhook: WebhookSettings, content: dict[str, Any]) -> None:
    import requests  # Imported only here, so that runs without a webhook do not wait for it.

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
        # The content is only for this host; and a redirected POST becomes a GET.
        allow_redirects=False,
        # Only the status is read: the body might be endless.
        stream=True,
    ) as response:
        status = response.status_code
    if 300 <= status < 400:
        raise _UndeliveredError(f"it answered {status}, a redirection; give the URL it leads to")
    if status >= 400:
        raise _UndeliveredError(f"it answered {status}", again=status >= 500 or status == 429)


def _send(email: EmailSettings, content: dict[str, Any]) -> None:
    """Sends the content of a notification by mail.

    Raises:
      OSError: the mail was not sent to all receivers; `_explain_answer` describes the response.
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
    if refused:  # No second attempt: the other recipients have the mail.
        raise smtplib.SMTPRecipientsRefused(refused)


def _explain_answer(error: OSError) -> tuple[str, bool] | None:
    """Returns a mail server's response, and whether another attempt may succeed; None without
    one.
    """
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"it refuses the login ({error.smtp_code})", False
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return _refused(error.recipients), False
    if isinstance(error, smtplib.SMTPResponseException):
        response = error.smtp_error
        text = response.decode(errors="replace") if isinstance(response, bytes) else response
        sentence = f"it answered {error.smtp_code} {shorten(text)}"
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
    answers = (
        f"{to} ({code} {text.decode(errors='replace')})" for to, (code, text) in recipients.items()
    )
    return f"it refuses {', '.join(answers)}"
