"""The kubeconfig: the API server, the namespace and the user's credentials.

Files, context and namespace are chosen as kubectl chooses them. No file is written. In a pod without a kubeconfig,
the pod's service account is used.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from launcher.errors import LauncherError
from launcher.k8s import lazy_imports
from launcher.k8s.errors import LoginFailed
from launcher.loopback import is_loopback

_NO_KUBECONFIG = (
    "Set KUBECONFIG to the path of your cluster's kubeconfig, or leave it unset for ~/.kube/config. On GKE: gcloud "
    "container clusters get-credentials NAME."
)
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# The fields of a kubeconfig's user that become a header.
_SENT_CREDENTIALS = ("token", "tokenFile", "username", "exec", "auth-provider")


class NoCluster(LauncherError):
    """No kubeconfig exists, so no cluster is configured."""


@dataclass(frozen=True)
class Access:
    """A context: its API server and credentials. `configuration` is a kubernetes.client.Configuration.

    `context`, `cluster` and `user` are names from the kubeconfig. `chosen` is true if the caller named the context;
    it may then not be the current one.
    """

    configuration: Any
    context: str
    cluster: str
    user: str
    namespace: str
    chosen: bool = False

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self.configuration.host)

    @property
    def name(self) -> str:
        """The cluster's name for messages."""
        return f"the cluster {self.cluster}" if self.cluster == self.context else f"the context {self.context}"

    def credentials(self) -> dict[str, str]:
        """Return the authentication headers, or {} if a client certificate authenticates the user.

        Raises LoginFailed if the credential plugin fails.
        """
        with _quiet_plugin(self.context):
            settings = self.configuration.auth_settings()
        return {entry["key"]: entry["value"] for entry in settings.values() if entry["value"]}


def load(context: str | None = None, namespace: str | None = None) -> Access:
    """Load the context from the kubeconfig. Makes no request.

    Raises NoCluster if there is no kubeconfig. Raises LauncherError if `namespace` is not a valid name, if the
    kubeconfig does not have the context, or if it cannot be read.
    """
    if namespace is not None and not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", namespace):
        raise LauncherError(
            f'"{namespace}" is not a valid namespace: use a name like team-a (a-z, 0-9 and -, at most 63 characters).'
        )
    lazy_imports.prepare()
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.config_exception import ConfigException

    configuration = Configuration()
    configuration.retries = False
    configuration.connection_pool_maxsize = 8
    found = files()
    if not found:
        return _in_cluster(configuration, context, namespace)
    where = os.pathsep.join(map(str, found))
    try:
        reader = lazy_imports.kube_config()
        merger = reader.KubeConfigMerger(where)
        if "auth-provider" in str(merger.config_files):
            reader = importlib.import_module("kubernetes.config.kube_config")
            merger = reader.KubeConfigMerger(where)
        merged = merger.config
        # With several files, kubectl uses the first current-context; the package uses the last one.
        current = [config.get("current-context") for config in merger.config_files.values()]
        merged.value["current-context"] = next(filter(None, current), "")
        _check_context(merged.value, context, where)
        _check_encryption(merged.value, merger.config_files, context)
        loader = reader.KubeConfigLoader(config_dict=merged, active_context=context, config_base_path=None)
        with _quiet_plugin(where):
            loader.load_and_set(configuration)
        chosen = loader.current_context
    except ConfigException as error:
        raise LauncherError(f"The kubeconfig {where} cannot be used: {str(error).rstrip('.')}.") from error
    except OSError as error:
        raise LauncherError(f"The kubeconfig {where} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LauncherError(f"{where} is not a valid kubeconfig.", "kubectl config view shows more.") from error
    except Exception as error:
        if type(error).__module__.startswith("yaml"):
            raise LauncherError(f"The kubeconfig {where} is not valid YAML: {' '.join(str(error).split())}.") from error
        raise
    inside = chosen["context"]
    if not str(configuration.host).startswith(("https://", "http://")):
        raise LauncherError(
            f'The kubeconfig {where} gives "{configuration.host}" as the server of the cluster {inside["cluster"]}; '
            "it must be a URL that begins with https://."
        )
    return Access(
        configuration,
        context=chosen["name"],
        cluster=str(inside["cluster"]),
        user=str(inside.get("user") or ""),
        namespace=namespace or str(inside.get("namespace") or "default"),
        chosen=context is not None,
    )


def files() -> list[Path]:
    """Return the existing kubeconfig files, in kubectl's search order: KUBECONFIG, else ~/.kube/config."""
    named = _given() if os.environ.get("KUBECONFIG") else [Path.home() / ".kube" / "config"]
    return [file for file in named if file.exists()]


def configured() -> bool:
    """Return whether a cluster is configured, by a kubeconfig or the service account of a pod."""
    return bool(files()) or "KUBERNETES_SERVICE_HOST" in os.environ


def nowhere() -> str:
    """Return the start of an error message if KUBECONFIG names only missing files, else ""."""
    return f"KUBECONFIG names {os.environ['KUBECONFIG']}, which does not exist" if _given() and not files() else ""


def _given() -> list[Path]:
    """Return the paths in KUBECONFIG, without /dev/null, which users set to select no kubeconfig."""
    paths = os.environ.get("KUBECONFIG", "").split(os.pathsep)
    return [Path(path).expanduser() for path in paths if path not in ("", os.devnull)]


def _in_cluster(configuration: Any, context: str | None, namespace: str | None) -> Access:
    if context is not None or "KUBERNETES_SERVICE_HOST" not in os.environ:
        unnamed = "KUBECONFIG names no file" if os.environ.get("KUBECONFIG") else "There is no ~/.kube/config"
        missing = nowhere() or unnamed
        raise NoCluster(f"{missing}, so there is no cluster to connect to.", _NO_KUBECONFIG)
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.incluster_config import load_incluster_config

    try:
        load_incluster_config(configuration)
        inside = (_SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except (ConfigException, OSError) as error:
        raise LauncherError(f"This pod's service account cannot be used: {error}.") from error
    return Access(
        configuration, context="in-cluster", cluster="in-cluster", user="", namespace=namespace or inside or "default"
    )


def _check_context(kubeconfig: Mapping[str, Any], context: str | None, where: str) -> None:
    """Raise LauncherError if the kubeconfig does not have the context, or if `context` is None and none is current."""
    names = [str(entry["name"]) for entry in kubeconfig.get("contexts") or []]
    if context is None and not kubeconfig.get("current-context"):
        raise LauncherError(
            f"{where} has no current context.",
            "Choose one with --context, or set it: kubectl config use-context NAME.",
        )
    context = context or str(kubeconfig["current-context"])
    if context in names:
        return

    near = get_close_matches(context, names, n=1)
    guess = f'did you mean "{near[0]}"?' if near else f"it has {', '.join(names) or 'none'}."
    raise LauncherError(f'{where} has no context "{context}"; {guess}', "kubectl config get-contexts lists them.")


def _tree(node: Any) -> dict[str, Any]:
    """Return an entry of a merged kubeconfig without the package's ConfigNode, which has it as `value`."""
    return dict(getattr(node, "value", node))


def _check_encryption(kubeconfig: Mapping[str, Any], sources: Mapping[str, Any], context: str | None) -> None:
    """Raise LauncherError if the context would send credentials unencrypted over a network.

    kubectl sends them. A client certificate is not sent without TLS.
    """
    found = {
        kind: {str(entry.get("name")): entry.get(kind.removesuffix("s")) or {} for entry in map(_tree, entries or ())}
        for kind, entries in kubeconfig.items()
        if kind in ("contexts", "clusters", "users")
    }
    inside = found["contexts"][context or str(kubeconfig["current-context"])]
    name, user = str(inside.get("cluster")), str(inside.get("user"))
    server = str(found.get("clusters", {}).get(name, {}).get("server"))
    sent = [key for key in _SENT_CREDENTIALS if found.get("users", {}).get(user, {}).get(key)]
    url = urlsplit(server)
    if url.scheme != "http" or not sent or is_loopback(url.hostname):
        return
    where = next(
        (
            f"{file}:{number}: "
            for file in sources
            for number, line in enumerate(Path(file).read_text(encoding="utf-8").splitlines(), 1)
            if "server" in line and server in line
        ),
        "",
    )
    raise LauncherError(
        f"{where}The server of the cluster {name} is {server}, so the credentials of the user {user} (users.{sent[0]}) "
        "would be sent unencrypted.",
        "Use a URL that begins with https://. Addresses of this machine, such as http://127.0.0.1:8001 of kubectl "
        "proxy, are accepted.",
    )


@contextlib.contextmanager
def _quiet_plugin(where: str) -> Iterator[None]:
    """Raise LoginFailed with the message of a failed credential plugin (gke-gcloud-auth-plugin).

    The kubernetes package only logs that message.
    """
    import logging

    messages: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    root, handler = logging.getLogger(), Collect(logging.ERROR)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
    if messages:
        missing = re.search(r"No such file or directory: '([^']+)'", messages[-1])
        cause = f"{missing[1]} is not installed" if missing else _plugin_cause(messages[-1])
        install = "gcloud components install gke-gcloud-auth-plugin, then " if missing else ""
        raise LoginFailed(f"The credential plugin of {where} failed: {cause}.", f"On GKE: {install}gcloud auth login.")


def _plugin_cause(text: str) -> str:
    """Return the plugin's output on one line, without the prefixes of Go's logger, such as "F1123 … cred.go:145]"."""
    return " ".join(re.sub(r"\b[IWEF]\d{4} [\d:.]+ +\d+ \S+:\d+\] ", "", text).split()).rstrip(".")
