"""A notification as a mail, and what a mail server answers to it."""

from __future__ import annotations

import json
import smtplib
import ssl
from email.message import EmailMessage
from typing import Any
from urllib.parse import urlsplit

from pipeline.config.sections.notify import EmailSettings
from trainer_module.errors import shorten

SMTP_PORT = 25


def send_mail(
    email: EmailSettings, password: str | None, content: dict[str, Any], timeout: float
) -> None:
    """Sends the content of a notification.

    Args:
      email: the server and the addresses.
      password: of the user, if there is one.
      content: as `notify` makes it.
      timeout: seconds that the server may take until it sends the next bytes.

    Raises:
      OSError: it could not be sent to all; `explain_answer` knows what the server said.
    """
    mail = _compose(email, content)
    parts = urlsplit(f"//{email.server}")
    with smtplib.SMTP(parts.hostname or "", parts.port or SMTP_PORT, timeout=timeout) as server:
        if email.tls:
            server.starttls(context=ssl.create_default_context())
        if email.user is not None and password is not None:
            server.login(email.user, password)
        refused = server.send_message(mail)
    if refused:  # No second attempt: the other recipients have the mail.
        raise smtplib.SMTPRecipientsRefused(refused)


def explain_answer(error: OSError) -> tuple[str, bool] | None:
    """What a mail server answered, and whether another attempt may succeed; None if it did not."""
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"it refuses the login ({error.smtp_code})", False
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return _refused(error.recipients), False
    if isinstance(error, smtplib.SMTPResponseException):
        said = error.smtp_error
        text = said.decode(errors="replace") if isinstance(said, bytes) else said
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
