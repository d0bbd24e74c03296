"""`launcher serve` and `launcher chat` as a user types them: a real server on loopback, and OpenAI's own client."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from launcher.products.common import machine
from tests import huggingface_model
from tests.cli.conftest import Launcher, eventually
from tests.trainer.runs import free_port

_TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    url: str
    err: list[str]

    def client(self, key: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url, api_key=key, max_retries=0)

    def end(self) -> int:
        """Press Ctrl-C, and return the exit code when no process is left."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        assert children
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(20)
        eventually(lambda: not any(child.is_running() and child.status() != "zombie" for child in children))
        return code


@contextmanager
def serving(launcher: Launcher, *arguments: str, **options: Any) -> Iterator[Server]:
    process = launcher.start("serve", *arguments, "--port", str(free_port()), **options)
    err: list[str] = []
    assert process.stdout is not None and process.stderr is not None
    reader = threading.Thread(target=lambda: err.extend(process.stderr or ()), daemon=True)
    reader.start()
    try:
        url = process.stdout.readline().strip()
        assert url, "".join(err)
        yield Server(process, url, err)
    finally:
        process.kill()
        process.wait()
        reader.join(10)
        process.stdout.close()
        process.stderr.close()


def talk(launcher: Launcher, *arguments: str, messages: str, **options: Any) -> tuple[int, str, str]:
    """Return the exit code, the answers and the messages of `launcher chat` with the messages on stdin."""
    process = launcher.start("chat", *arguments, stdin=subprocess.PIPE, **options)
    out, err = process.communicate(messages, timeout=60)
    return process.returncode, out, err


def test_a_model_is_served_until_ctrl_c(launcher: Launcher) -> None:
    huggingface_model.write(launcher.folder / "model")
    with serving(launcher, "./model") as server:
        eventually(lambda: any("Press Ctrl-C" in line for line in server.err))
        (key,) = re.findall(r"API key: (\S+)", "".join(server.err))
        client = server.client(key)
        assert [model.id for model in client.models.list()] == ["model"]
        asked = {"model": "model", "prompt": "def main(", "max_tokens": 12, "temperature": 0}
        whole = client.completions.create(**asked)
        generated = launcher(
            "generate", "./model", "def main(", "--max-tokens", "12", "--temperature", "0", "-o", "json"
        )
        assert whole.choices[0].text == generated.json["text"]
        assert (whole.usage.completion_tokens, whole.choices[0].finish_reason) == (12, "length")
        parts = list(client.completions.create(**asked, stream=True))
        assert "".join(part.choices[0].text for part in parts) == whole.choices[0].text
        assert len(parts) > 6

        # A seed gives the same text, alone and next to others.
        def sampled(seed: int) -> str:
            return str(client.completions.create(**{**asked, "temperature": 1}, seed=seed).choices[0].text)

        with ThreadPoolExecutor(50) as pool:
            texts = list(pool.map(sampled, [number % 5 for number in range(50)]))
        assert texts == [sampled(number) for number in range(5)] * 10
        assert len(set(texts)) == 5

        with pytest.raises(openai.AuthenticationError, match=r"401.*The API key is missing or wrong"):
            server.client("wrong").models.list()
        with pytest.raises(openai.BadRequestError, match="no chat template"):
            client.chat.completions.create(model="model", messages=[{"role": "user", "content": "a"}])
        with pytest.raises(openai.BadRequestError, match=r"The prompt has 101 tokens; the model accepts 63\."):
            client.completions.create(model="model", prompt=" " * 100)

        (record,) = (launcher.home / "serve").iterdir()
        assert (record.stat().st_mode & 0o777, record.parent.stat().st_mode & 0o777) == (0o600, 0o700)

        # The server accepts connections from this machine only.
        port = int(server.url.removesuffix("/v1").rpartition(":")[2])
        listening = [each.laddr for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        assert [address for address in listening if address and address.port == port] == [("127.0.0.1", port)]

        # A model without a chat template continues the text so far.
        code, out, err = talk(
            launcher, "model", "--temperature", "0", "--max-tokens", "6", messages="def main(\n\nb\n/new\ndef main(\n"
        )
        assert (code, err) == (0, "This model has no chat template: it continues the text so far.\n")
        begin = client.completions.create(**{**asked, "max_tokens": 6}).choices[0].text
        more = client.completions.create(**{**asked, "prompt": f"def main({begin}\nb", "max_tokens": 6}).choices[0].text
        assert out == f"{begin}\n{more}\n{begin}\n"
        code, out, err = talk(launcher, "model", messages=" a" * 70 + "\n")
        assert code == 1 and re.search(r"400: The prompt has \d+ tokens; the model accepts 63\.\n", err)

        used = launcher("serve", "./model", "--port", str(port), "--name", "other")
        assert (used.code, used.err.splitlines()[0]) == (
            1,
            f"Error: The port {port} of this machine is already in use.",
        )
        same = launcher("serve", "./model", "--port", str(free_port()))
        assert same.err.splitlines()[0] == "Error: A model of the name model is already served on this machine."
        unknown = launcher("chat", "other")
        assert unknown.err.splitlines()[0] == "Error: No model other is served on this machine, only model."
        assert server.end() == 0
    assert "".join(server.err).endswith("model is no longer served.\n")
    assert not record.exists()


def test_a_model_with_a_chat_template_remembers_the_conversation(launcher: Launcher) -> None:
    folder = huggingface_model.write(launcher.folder / "model", max_position_embeddings=256)
    (folder / "chat_template.jinja").write_text(_TEMPLATE)
    (launcher.folder / "key").write_text("secret-of-the-tests\n")
    with serving(launcher, "./model", "--name", "org/talks", "--api-key-file", "key") as server:
        assert "secret" not in "".join(server.err)
        client = server.client("secret-of-the-tests")

        def answer(*contents: str) -> str:
            roles = ("system", "user", "assistant", "user")
            messages: Any = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
            asked = client.chat.completions.create(model="org/talks", messages=messages, max_tokens=8, temperature=0)
            return str(asked.choices[0].message.content)

        first = answer("Be brief", "def main(")
        second = answer("Be brief", "def main(", first, "import")
        options = ("--system", "Be brief", "--temperature", "0", "--max-tokens", "8")
        assert talk(launcher, "org/talks", *options, messages="def main(\nimport") == (0, f"{first}\n{second}\n", "")
        key = {"SLIPWAY_API_KEY": "secret-of-the-tests"}
        assert talk(launcher, "--url", server.url, *options, messages="def main(", env=key) == (0, f"{first}\n", "")
        code, _, err = talk(launcher, "--url", server.url, messages="a", env={"SLIPWAY_API_KEY": "wrong"})
        assert (code, err.splitlines()[0]) == (1, f"Error: {server.url[:-3]} rejects the API key.")

        # The record of a server that was killed is ignored and removed.
        (record,) = (launcher.home / "serve").iterdir()
        server.process.kill()
        server.process.wait()
        assert record.exists()
        gone = launcher("chat", "org/talks")
        assert gone.err.splitlines()[0] == "Error: No model org/talks is served on this machine."
        assert not record.exists()


@pytest.fixture
def broken() -> Iterator[str]:
    """A server with OpenAI's API whose model has ended: before an answer, and in the middle of one."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            middle = body["messages"][-1]["content"] == "middle"
            error = {"error": {"message": "The engine has ended: out of memory.", "code": None}}
            self.send_response(200 if middle else 503)
            self.end_headers()
            event = json.dumps({"choices": [{"delta": {"content": "half"}}]})
            text = f"data: {event}\n\ndata: {json.dumps(error)}\n\n" if middle else json.dumps(error)
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_chat_reports_why_there_is_no_answer(launcher: Launcher, broken: str) -> None:
    code, out, err = talk(launcher, "m", "--url", broken, messages="a\n")
    assert (code, out) == (1, "")
    assert err == f"Error: {broken} answers with status 503: The engine has ended: out of memory.\n"
    code, out, err = talk(launcher, "m", "--url", broken, messages="middle\n")
    assert (code, out) == (1, "half")
    assert err == f"Error: The answer of {broken} is incomplete: The engine has ended: out of memory.\n"
    closed = f"http://127.0.0.1:{free_port()}"
    done = launcher("chat", "--url", closed)
    assert (done.code, done.err.splitlines()[0]) == (1, f"Error: {closed} does not answer: Connection refused.")


def test_what_cannot_be_served(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    def error(*arguments: str, **options: Any) -> str:
        done = launcher(*arguments, **options)
        assert (done.code in (1, 2), done.out) == (True, "")
        return done.err.splitlines()[-1] if done.code == 2 else done.err.splitlines()[0]

    folder: Path = huggingface_model.write(launcher.folder / "model")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = str(unused.getsockname()[1])
    assert error("serve", "./nowhere") == f"Error: There is no folder {launcher.folder}/nowhere."
    assert error("serve", "hf:Qwen/Qwen3-0.6B") == (
        "Error: hf:Qwen/Qwen3-0.6B is on Hugging Face, but a model runs from a folder of this machine."
    )
    assert error("serve", "./model", env={"SLIPWAY_API_KEY": "two words"}) == (
        "Error: SLIPWAY_API_KEY is not an API key: use one word of ASCII characters."
    )
    assert error("serve", "./model", "--api-key-file", "none") == (
        "Error: The API key none cannot be read: No such file or directory."
    )
    assert error("chat") == "Error: Give the NAME of a model that launcher serve serves, or --url URL."
    assert error("chat", "--url", "localhost:8000").startswith("Error: --url localhost:8000 is not a URL")
    with monkeypatch.context() as patched:
        patched.setattr(machine, "memory_to_spare", lambda: 100 << 20)
        assert error("serve", "./model", "--port", port).startswith("Error: ./model needs 0.4 GiB of memory (0.")
    (folder / "model.safetensors").write_bytes(b"no weights")
    damaged = launcher("serve", "./model", "--port", port)
    assert damaged.code == 1
    assert damaged.err.splitlines()[-1].startswith(f"Error: {folder} cannot be loaded as a model: ")
    assert list((launcher.home / "serve").iterdir()) == []
