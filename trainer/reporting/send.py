"""Send one notification to one address. Imports only the standard library.

Neither an error nor the log has a part of the URL. A redirect is not followed: the notification would go to another
host than the one in the Secret.
"""

from __future__ import annotations

import json
import smtplib
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from trainer.reporting.addresses import EMAIL, Address
from trainer.reporting.patience import within

SECONDS = 15.0
"""The time in which one attempt must end, from the name's resolution to the status."""
_SOCKET_SECONDS = 10.0
_PASSING = (408, 425, 429)
_LONGEST = 3000


class SendError(Exception):
    """A notification was not accepted. `final`: another attempt does not help. The text has no secret."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def send(address: Address, message: Mapping[str, Any], seconds: float = SECONDS) -> None:
    """Send a message, at most once. `message` has `text`, the sentence for people. Raises SendError."""
    try:
        within(seconds, _email if address.kind == EMAIL else _post, address, message)
    except BaseException as error:
        raise _named(error) from None


def payload(kind: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON body of a kind: Slack's and Google Chat's text, an adaptive card for Teams, or the message."""
    text = str(message["text"])[:_LONGEST]
    if kind == "slack":
        for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
            text = text.replace(character, entity)
        return {"text": text}
    if kind == "google-chat":
        return {"text": text}
    if kind == "teams":
        card = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.4",
            "body": [{"type": "TextBlock", "text": text, "wrap": True}],
        }
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        return {"type": "message", "attachments": [attachment]}
    return dict(message)


def _post(address: Address, message: Mapping[str, Any]) -> None:
    body = json.dumps(payload(address.kind, message)).encode()
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "slipway"}
    request = urllib.request.Request(address.url, body, headers, method="POST")  # noqa: S310 - http and https only
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=_SOCKET_SECONDS) as response:
        response.read(1)


def _email(address: Address, message: Mapping[str, Any]) -> None:
    parts, query = urlsplit(address.url), parse_qs(urlsplit(address.url).query)
    host, secure = parts.hostname or "", parts.scheme == "smtps"
    mail = EmailMessage()
    mail["From"], mail["To"] = query["from"][0], ", ".join(query["to"])
    first = " ".join(str(message["text"]).splitlines()[:1])
    mail["Subject"] = first[:150]
    mail.set_content(str(message["text"])[:_LONGEST])
    context = ssl.create_default_context()
    client: smtplib.SMTP
    if secure:
        client = smtplib.SMTP_SSL(host, parts.port or 465, timeout=_SOCKET_SECONDS, context=context)
    else:
        client = smtplib.SMTP(host, parts.port or 587, timeout=_SOCKET_SECONDS)
    with client:
        client.ehlo()
        if not secure and client.has_extn("starttls"):
            client.starttls(context=context)
            client.ehlo()
        elif not secure and parts.password:
            raise SendError("its server offers no TLS, so the password is not sent", final=True)
        if parts.username and parts.password:
            client.login(unquote(parts.username), unquote(parts.password))
        client.send_message(mail)


def _named(error: BaseException) -> SendError:
    """Return the error with a reason that has no part of the URL."""
    if isinstance(error, SendError):
        return error
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        if 300 <= error.code < 400:
            return SendError(f"it redirects to another address (HTTP {error.code})", final=True)
        return SendError(f"it answered HTTP {error.code}", final=error.code < 500 and error.code not in _PASSING)
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, BaseException):
        return _named(error.reason)
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return SendError("its server refuses the user or the password", final=True)
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = {code for code, _ in error.recipients.values()}
        return SendError("its server refuses the recipients", final=min(codes, default=0) >= 500)
    if isinstance(error, smtplib.SMTPResponseException):
        return SendError(f"its server answered {error.smtp_code}", final=error.smtp_code >= 500)
    if isinstance(error, ssl.SSLCertVerificationError):
        return SendError(f"its certificate is not valid ({error.verify_message})", final=True)
    if isinstance(error, ssl.SSLError):
        return SendError("the TLS connection failed")
    if isinstance(error, socket.gaierror):
        return SendError("its host name cannot be resolved")
    if isinstance(error, TimeoutError):
        return SendError("it did not answer in time" if error.strerror or not error.args else str(error))
    if isinstance(error, OSError) and error.strerror:
        return SendError(f"no connection ({error.strerror})")
    return SendError(f"it failed ({type(error).__name__})")
