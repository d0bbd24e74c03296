"""The launcher as a member of a team, for whom the charts' roles and admission policies apply.

A member is a service account in the session's namespace. It has no rights but those that charts/queues grants to the
members of its team. The suite, as administrator, creates the account and requests its tokens.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.cluster.api import Api
from tests.e2e.cli import Cli
from tests.e2e.settings import LABEL

TOKEN_SECONDS = 2 * 3600
"""A token's validity. A command of an hour, the longest time limit of a test, ends before its token does."""
_RENEWED_AFTER = TOKEN_SECONDS / 4


class Member(Cli):
    """Runs commands with a kubeconfig that has only the member's token. The context's namespace is the team's."""

    def __init__(self, admin: Cli, session: str, account: str, team: str) -> None:
        """session: the namespace of the service account `account`, which is created."""
        self.account = f"{session}/{account}"
        kubeconfig = admin.folder / f"{team}-member.kubeconfig"
        settings = replace(admin.settings, kubeconfig=str(kubeconfig), context="")
        super().__init__(settings, admin.folder, admin.helm, admin.api)
        self._team, self._kubeconfig, self._renewed = team, kubeconfig, 0.0
        metadata = {"name": account, "namespace": session, "labels": {LABEL: session}}
        self.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})

    def client(self) -> Api:
        """A client of the API server with the member's rights, for requests that the launcher does not send."""
        self._renew_token()
        return Api(self._kubeconfig)

    def _start(self, *arguments: Any, **options: Any) -> Any:
        self._renew_token()
        return super()._start(*arguments, **options)

    def _renew_token(self) -> None:
        """Write a kubeconfig with a new token, unless the last token is recent."""
        if self._renewed and time.monotonic() - self._renewed < _RENEWED_AFTER:
            return
        session, account = self.account.split("/")
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        path = f"/api/v1/namespaces/{session}/serviceaccounts/{account}/token"
        token = str(self.api.request("POST", path, body)["status"]["token"])
        write_kubeconfig(self._kubeconfig, self.api.cluster_entry(), account, token, self._team)
        self._renewed = time.monotonic()


def write_kubeconfig(file: Path, cluster: dict[str, Any], user: str, token: str, namespace: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": user, "context": {"cluster": "e2e", "user": user, "namespace": namespace}}],
        "current-context": user,
    }
    new = file.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(json.dumps(config, indent=1))  # JSON is YAML
    new.replace(file)  # a running command reads the old file or the new one
