"""Notifications on real servers of this machine, also broken ones; each once, with no secret in any text."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.certificates import Authority
from tests.unit.notification_servers import TOKEN, http, refusing, silent, smtp
from trainer.reporting import addresses, marks
from trainer.reporting.addresses import Address
from trainer.reporting.notifier import Notifier, message
from trainer.reporting.send import SendError, payload, send

TEXT = "Run demo (team research) has failed. The loss is <nan> & more."
MESSAGE = message("ended", TEXT, run="demo", team="research", state="failed")


def address(kind: str, url: str) -> Address:
    (parsed,), problems = addresses.parse(f"{kind} {url}")
    assert problems == []
    return parsed


@pytest.fixture(autouse=True)
def no_secret(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    written = capfd.readouterr()
    assert TOKEN not in written.out + written.err + caplog.text


@pytest.mark.parametrize("kind", ["slack", "google-chat", "teams", "json"])
def test_the_body_of_each_kind(kind: str) -> None:
    with http() as server:
        send(address(kind, server.url), MESSAGE)
    ((path, body),) = server.requests
    assert path == f"/services/{TOKEN}"
    assert body == payload(kind, MESSAGE)
    if kind == "slack":
        assert body == {"text": "Run demo (team research) has failed. The loss is &lt;nan&gt; &amp; more."}
    elif kind == "google-chat":
        assert body == {"text": TEXT}
    elif kind == "teams":
        (attachment,) = body["attachments"]
        assert attachment["content"]["body"][0] == {"type": "TextBlock", "text": TEXT, "wrap": True}
    else:
        assert {key: body[key] for key in ("event", "run", "team", "state")} == {
            "event": "ended",
            "run": "demo",
            "team": "research",
            "state": "failed",
        }


def test_e_mail() -> None:
    with smtp() as server:
        send(address("email", f"smtp://127.0.0.1:{server.port}?from=slipway@example.com&to=me@example.com"), MESSAGE)
    (mail,) = server.mails
    assert (mail.mail_from, mail.rcpt_tos) == ("slipway@example.com", ["me@example.com"])
    assert f"Subject: {TEXT}".encode() in mail.content


def test_a_password_is_not_sent_without_tls() -> None:
    with smtp() as server, pytest.raises(SendError, match="its server offers no TLS") as refused:
        url = f"smtp://me:{TOKEN}@127.0.0.1:{server.port}?from=a@example.com&to=b@example.com"
        send(address("email", url), MESSAGE)
    assert refused.value.final
    assert (server.logins, server.mails) == ([], [])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the files of a certificate for 127.0.0.1 with its key, and of its authority."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    certificate, key = authority.issue("server", hosts=("127.0.0.1",))
    (folder / "both.pem").write_bytes(certificate.read_bytes() + key.read_bytes())
    return folder / "both.pem", authority.certificate


@pytest.mark.parametrize(
    ("answers", "says", "final"),
    [((500,), "HTTP 500", False), ((429,), "HTTP 429", False), ((404,), "HTTP 404", True), ((403,), "HTTP 403", True)],
)
def test_a_server_that_refuses(answers: tuple[int, ...], says: str, final: bool) -> None:
    with http(answers) as server, pytest.raises(SendError, match=says) as refused:
        send(address("slack", server.url), MESSAGE)
    assert refused.value.final is final


def test_a_redirect_is_not_followed() -> None:
    with http() as elsewhere, http((307,), location=f"{elsewhere.url}/{TOKEN}") as server:
        with pytest.raises(SendError, match=r"it redirects to another address \(HTTP 307\)") as refused:
            send(address("json", server.url), MESSAGE)
        assert refused.value.final
        assert elsewhere.requests == []


def test_a_wrong_certificate(certificate: tuple[Path, Path]) -> None:
    with http(certificate=certificate[0]) as server, pytest.raises(SendError, match="its certificate is not valid"):
        send(address("slack", server.url), MESSAGE)
    assert server.requests == []


def test_a_server_that_hangs_and_one_that_drips() -> None:
    with silent() as server:
        started = time.monotonic()
        with pytest.raises(SendError, match="did not answer within 1 s"):
            send(address("slack", server.url), MESSAGE, seconds=1)
        assert time.monotonic() - started < 2
    with http(drip=100) as server, pytest.raises(SendError, match="did not answer within 1 s"):
        send(address("slack", server.url), MESSAGE, seconds=1)


def test_no_connection_and_no_name() -> None:
    with pytest.raises(SendError, match="no connection"):
        send(address("slack", refusing()), MESSAGE)
    with pytest.raises(SendError, match=r"its host name cannot be resolved|did not answer"):
        send(address("slack", f"https://no-such-host.invalid/{TOKEN}"), MESSAGE)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"pager https://example.com/{TOKEN}", "it must begin with one of slack, google-chat, teams, json, email."),
        (f"slack http://example.com/{TOKEN}", "its URL must begin with https://."),
        (f"slack ftp://example.com/{TOKEN}", "its URL must begin with https://."),
        (f"slack https:///{TOKEN}", "its URL has no host."),
        (f"slack https://[{TOKEN}", "its URL cannot be read."),
        (f"slack https://example.com:{TOKEN}/", "its URL cannot be read."),
        ("slack", "it must be a kind and a URL, separated by a space."),
        (f"email smtps://me:{TOKEN}@example.com", "must end with ?from=ADDRESS&to=ADDRESS."),
        (f"email https://{TOKEN}", "must begin with smtps:// or smtp://."),
        (f"email smtp://h?from=a%0d%0aBcc:x&to={TOKEN}", "an address of an e-mail must be one line."),
    ],
)
def test_an_address_that_is_not_valid(line: str, says: str) -> None:
    known, problems = addresses.parse(f"# the team's\n\n{line}\nslack https://example.com/good\n")
    assert [each.kind for each in known] == ["slack"]
    assert len(problems) == 1
    assert problems[0].startswith("Line 3 of the addresses of notifications is not valid: ")
    assert problems[0].endswith(says)
    assert TOKEN not in problems[0]


def test_the_addresses_of_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_NOTIFY", raising=False)
    assert addresses.from_environment() == ([], addresses.DEFAULT_EVENTS, [])
    path = tmp_path / "addresses"
    path.write_text("slack https://example.com/a\n")
    monkeypatch.setenv("SLIPWAY_NOTIFY_FILE", str(path))
    monkeypatch.setenv("SLIPWAY_NOTIFY", "json https://example.com/b")
    assert [each.kind for each in addresses.from_environment()[0]] == ["json", "slack"]
    path.unlink()
    known, _, problems = addresses.from_environment()
    assert [each.kind for each in known] == ["json"]
    assert problems == [f"{path} (SLIPWAY_NOTIFY_FILE) cannot be read: No such file or directory."]


def test_the_events_of_a_team() -> None:
    text = "events started ended\nslack https://example.com/a\n"
    assert (addresses.events_of(text), addresses.parse(text)[1]) == (("started", "ended"), [])
    (problem,) = addresses.parse("events ended woken")[1]
    assert problem.startswith(
        "Line 1 of the addresses of notifications has an event that is not of started, first-step,"
    )


# --- once, with retries, and never in the way -----------------------------------------------------------------------


def notifier(folder: Path | None, *to: Address, log: list[str] | None = None) -> Notifier:
    report = (log if log is not None else []).append
    return Notifier(to, folder, pauses=(0.05, 0.05, 0.05), report=report)


def mark(folder: Path, number: str) -> Any:
    return json.loads((folder / marks.FOLDER / f"{number}.json").read_text())


def test_500_and_then_200(tmp_path: Path) -> None:
    log: list[str] = []
    with http((500, 503, 200)) as server:
        sender = notifier(tmp_path, address("slack", server.url), log=log)
        sender.put("ended-1", MESSAGE)
        assert sender.close(10)
    assert len(server.requests) == 3
    assert log == []
    assert mark(tmp_path, "ended-1")["state"] == "sent"


def test_two_processes_send_once(tmp_path: Path) -> None:
    with http() as server:
        senders = [notifier(tmp_path, address("json", server.url)) for _ in range(5)]
        for sender in senders:
            sender.put("ended-1", MESSAGE)
            sender.put("ended-1", MESSAGE)
        assert all(sender.close(10) for sender in senders)
    assert len(server.requests) == 1


def test_one_address_fails_and_the_other_does_not(tmp_path: Path) -> None:
    log: list[str] = []
    with http((404,)) as broken, http() as server:
        sender = notifier(tmp_path, *_both(broken.url, server.url), log=log)
        sender.put("failed-2", MESSAGE)
        assert sender.close(10)
    assert (len(broken.requests), len(server.requests)) == (1, 1)
    assert log == ["The notification failed-2 was not sent to line 1 (slack) of the addresses: it answered HTTP 404."]
    assert mark(tmp_path, "failed-2")["errors"] == {"line 1 (slack)": "it answered HTTP 404"}


def test_at_the_end_an_address_that_does_not_answer_delays_no_later_notification(tmp_path: Path) -> None:
    with silent() as hangs, http((500,) * 9) as broken, http() as server:
        for number, bad in enumerate((hangs, broken)):
            sender = Notifier(_both(bad.url, server.url), tmp_path)  # with the pauses of a run
            for event in ("failed", "preempted", "ended"):
                sender.put(f"{event}-{number}", MESSAGE)
            assert not sender.close(5)
            assert len(server.requests) == 3 * (number + 1)
            assert list(mark(tmp_path, f"preempted-{number}")["errors"]) == ["line 1 (slack)"]


def _both(first: str, second: str) -> list[Address]:
    return addresses.parse(f"slack {first}\njson {second}")[0]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """A run whose storage refuses still notifies, once for each process."""
    (tmp_path / "file").write_text("")
    with http() as server:
        sender = notifier(tmp_path / "file", address("json", server.url))
        sender.put("ended-1", MESSAGE)
        sender.put("ended-1", MESSAGE)
        assert sender.close(10)
    assert len(server.requests) == 1


def test_a_full_queue_drops_and_nothing_waits(tmp_path: Path) -> None:
    with silent() as server:
        sender = notifier(tmp_path, address("slack", server.url))
        started = time.monotonic()
        for number in range(1000):
            sender.put(f"stalled-{number}", MESSAGE)
        assert time.monotonic() - started < 1
        assert not sender.close(0.5)
        assert time.monotonic() - started < 2


def test_a_process_ends_although_a_server_hangs(tmp_path: Path) -> None:
    """The exit of a process with a notification on its way takes at most its patience."""
    with silent() as server:
        code = (
            "from trainer.reporting.notifier import Notifier\nfrom trainer.reporting import addresses\n"
            "sender = Notifier(addresses.from_environment()[0], None)\n"
            "sender.put('ended-1', {'text': 'x'})\nprint(sender.close(1))\n"
        )
        env = {**os.environ, "SLIPWAY_NOTIFY": f"slack {server.url}"}
        started = time.monotonic()
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert time.monotonic() - started < 10
    assert (done.stdout, done.stderr) == ("False\n", "")
