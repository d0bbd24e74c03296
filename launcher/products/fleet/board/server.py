"""Serve the board on loopback: the page, its state as JSON, and explain, logs and report of a run."""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from importlib.resources import files
from urllib.parse import unquote

from launcher import api
from launcher.errors import LauncherError
from launcher.k8s.target import Target
from launcher.products.common.guarded_server import GuardedHandler, GuardedServer
from launcher.products.fleet.board.state import Board, sentence

_LINES = 200


class BoardServer(GuardedServer):
    """Serves the board of the user's own rights in a cluster, and of this machine."""

    def __init__(self, target: Target, port: int = 0) -> None:
        super().__init__(port, _Handler, what="The board", command="launcher board")
        self.daemon_threads = True
        self.target = target
        self.board = Board(target)


class _Handler(GuardedHandler):
    server: BoardServer

    def serve(self) -> None:
        path = self.path.partition("?")[0]
        parts = [unquote(part) for part in path.split("/")[1:]]
        if self.command not in ("GET", "HEAD"):
            self.answer(405, "The board only reads.")
        elif path == "/":
            self.answer(200, page(), "text/html; charset=utf-8")
        elif path == "/state.json":
            self.answer(200, self.server.board.text(), "application/json")
        elif len(parts) == 3 and parts[0] in _VIEWS and parts[2]:
            self._view(*parts)
        else:
            self.answer(404, f"The board has no page {path}.")

    def _view(self, view: str, namespace: str, name: str) -> None:
        target = self.server.target
        if namespace != "-":
            target = Target(context=target.context, namespace=namespace)
        try:
            text, kind = _VIEWS[view](name, target)
        except LauncherError as error:
            text, kind = sentence(error), "text/plain; charset=utf-8"
        self.answer(200, text, kind)


def _explain(name: str, target: Target) -> tuple[str, str]:
    explanation = api.explain(name, target=target)
    return explanation.as_text(), "text/plain; charset=utf-8"


def _logs(name: str, target: Target) -> tuple[str, str]:
    lines = api.logs(name, tail=_LINES, target=target)
    return "\n".join(lines), "text/plain; charset=utf-8"


def _report(name: str, target: Target) -> tuple[str, str]:
    return api.report([name], target=target).page, "text/html; charset=utf-8"


_VIEWS = {"explain": _explain, "logs": _logs, "report": _report}


@cache
def page() -> str:
    """Return the page. Its Content-Security-Policy allows its own script, and requests to this server only."""
    here = files("launcher.products.fleet.board")
    script, style = (here.joinpath(name).read_text(encoding="utf-8") for name in ("board.js", "board.css"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'"
    )
    text = here.joinpath("board.html").read_text(encoding="utf-8")
    return text.replace("{policy}", html.escape(policy, quote=True)).replace("{style}", style).replace("{js}", script)
