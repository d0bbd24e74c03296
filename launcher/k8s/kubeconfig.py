"""The kubeconfig: the API server, the namespace and the user.

Files, context and namespace are chosen as kubectl chooses them, and each setting of the cluster and the user has the
same meaning. A setting that kubectl corrects or ignores without a message may be an error. No file is written. In a pod
without a kubeconfig, the pod's service account is used.

The Python package kubernetes is not used: it does not impersonate, reads proxies and tokens in another way, and runs
credential plugins in another folder.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from launcher.errors import LauncherError
from launcher.k8s import identity, proxies
from launcher.k8s.identity import Identity, Plugin
from launcher.k8s.proxies import Proxy
from launcher.loopback import is_loopback
from launcher.safe_yaml import safe_loader

_NO_KUBECONFIG = (
    "Set KUBECONFIG to the path of your cluster's kubeconfig, or leave it unset for ~/.kube/config. On GKE: gcloud "
    "container clusters get-credentials NAME."
)
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# A host and a port, for which urlsplit raises no ValueError.
_PORT = r"(0*[1-5]?\d{1,4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
_URL = re.compile(rf"(?i)https?://([^][/@:?#\s]+|\[[^]/@\s]+])(:{_PORT}?)?($|[/?#])")
# The fields of a kubeconfig's user that become a header.
_SENT_CREDENTIALS = ("token", "tokenFile", "username", "exec", "auth-provider")
_PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
# The extension of a cluster that kubectl gives to a credential plugin.
_PLUGIN_EXTENSION = "client.authentication.k8s.io/exec"


class NoCluster(LauncherError):
    """No kubeconfig exists, so no cluster is configured."""


@dataclass(frozen=True)
class Access:
    """A context: its API server and its user.

    `server` is the URL of the API server. `context`, `cluster` and `user` are names from the kubeconfig. `chosen` is
    true if the caller named the context; it may then not be the current one. `ca` has the trusted certificates as PEM;
    None: those of this machine. `server_name` replaces the host's name in the server's certificate.
    """

    server: str
    context: str
    cluster: str
    user: str
    namespace: str
    identity: Identity = field(default_factory=Identity, repr=False)  # it has secrets
    chosen: bool = False
    ca: bytes | None = None
    verify: bool = True
    server_name: str = ""
    proxy: Proxy | None = None
    compress: bool = True

    @property
    def name(self) -> str:
        """The cluster's name for messages."""
        return f"the cluster {self.cluster}" if self.cluster == self.context else f"the context {self.context}"


def load(context: str | None = None, namespace: str | None = None) -> Access:
    """Load the context from the kubeconfig. Makes no request, but runs the user's credential plugin.

    Raises NoCluster if there is no kubeconfig. Raises LauncherError if `namespace` is not a valid name, if the
    kubeconfig does not have the context, or if it cannot be read. Raises LoginFailed if the plugin fails.
    """
    if namespace is not None and not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", namespace):
        raise LauncherError(
            f'"{namespace}" is not a valid namespace: use a name like team-a (a-z, 0-9 and -, at most 63 characters).'
        )
    paths = files()
    sources = [_Source(file) for file in paths]
    if not any(source.tree for source in sources) and (not paths or "KUBERNETES_SERVICE_HOST" in os.environ):
        return _in_cluster(context, namespace)
    where = os.pathsep.join(map(str, paths))
    chosen = _context(sources, context, where)
    cluster = _named(sources, "clusters", chosen.text("cluster"), chosen)
    server = cluster.text("server").rstrip("/")
    if not _URL.match(server):
        raise LauncherError(
            f"The kubeconfig {cluster.file} gives {proxies.shown(server)} as the server of the cluster "
            f"{cluster.name}; it must be a URL that begins with https://"
            + (", without a user and password." if "@" in server else ".")
        )
    server = urlsplit(server)._replace(query="", fragment="").geturl()
    user = _named(sources, "users", name, chosen) if (name := chosen.text("user")) else None
    if user is not None:
        _check_encryption(server, cluster, user)
    access = Access(
        server,
        context=chosen.name,
        cluster=cluster.name,
        user=user.name if user else "",
        namespace=namespace or chosen.text("namespace") or "default",
        chosen=context is not None,
        ca=cluster.content("certificate-authority"),
        verify=not cluster.flag("insecure-skip-tls-verify"),
        server_name=cluster.text("tls-server-name"),
        proxy=proxies.of_cluster(url, f"{cluster.place('proxy-url')} the proxy-url of the cluster {cluster.name}")
        if (url := cluster.text("proxy-url"))
        else proxies.of_environment(server),
        compress=not cluster.flag("disable-compression"),
        identity=_identity(server, user, cluster) if user else Identity(),
    )
    if access.ca is not None and not access.verify:
        raise cluster.error(
            "insecure-skip-tls-verify", "is true and a certificate-authority is set; remove one of them"
        )
    access.identity.current()
    return access


def files() -> list[Path]:
    """Return the existing kubeconfig files, in kubectl's search order: KUBECONFIG, else ~/.kube/config."""
    named = _given() if os.environ.get("KUBECONFIG") else [Path.home() / ".kube" / "config"]
    return [file for file in dict.fromkeys(named) if file.exists()]


def configured() -> bool:
    """Return whether a cluster is configured, by a kubeconfig or the service account of a pod."""
    return bool(files()) or "KUBERNETES_SERVICE_HOST" in os.environ


def nowhere() -> str:
    """Return the start of an error message if KUBECONFIG names only missing files, else ""."""
    return f"KUBECONFIG names {os.environ['KUBECONFIG']}, which does not exist" if _given() and not files() else ""


def _given() -> list[Path]:
    """Return the paths in KUBECONFIG, without /dev/null, which users set to select no kubeconfig."""
    paths = os.environ.get("KUBECONFIG", "").split(os.pathsep)
    return [Path(path) for path in paths if path not in ("", os.devnull)]


class _Source:
    """One file. `tree` is {} if it is empty."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.tree: dict[str, Any] = {}
        try:
            data = file.read_bytes()
        except OSError as error:
            raise LauncherError(f"The kubeconfig {file} cannot be read: {error.strerror}.") from error
        tree = _parse(data, file)
        what = isinstance(tree, dict) and (tree.get("apiVersion") or "v1", tree.get("kind") or "Config")
        if tree is not None and what != ("v1", "Config"):
            raise LauncherError(f"{file} is not a valid kubeconfig.", "It must have apiVersion: v1 and kind: Config.")
        self.tree = tree or {}
        self.lines = data.decode("utf-8-sig", "replace").splitlines()

    def entries(self, kind: str) -> list[_Entry]:
        """Return the contexts, clusters or users. Raises LauncherError if one has no name, or the same as another."""
        listed = self.tree.get(kind) or []
        entries = [
            _Entry(self, kind, entry["name"], entry.get(kind.removesuffix("s")) or {})
            for entry in (listed if isinstance(listed, list) else [None])
            if isinstance(entry, dict)
            and isinstance(entry.get("name"), str)
            and isinstance(entry.get(kind.removesuffix("s")) or {}, dict)
        ]
        if not isinstance(listed, list) or len(entries) < len(listed):
            raise LauncherError(
                f"{self.file} is not a valid kubeconfig: {kind} must be a list of entries, each with a name and a "
                f"{kind.removesuffix('s')}.",
                "kubectl config view shows more.",
            )
        names = [entry.name for entry in entries]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise LauncherError(f"{self.file} has two {kind} with the name {twice}; remove or rename one.")
        return entries


@dataclass(frozen=True)
class _Entry:
    """A context, a cluster or a user. Its methods return the settings, and raise LauncherError for a wrong type."""

    source: _Source
    kind: str
    name: str
    tree: Mapping[str, Any]

    @property
    def file(self) -> Path:
        return self.source.file

    def text(self, key: str) -> str:
        """Return the text, or "" if it is not set."""
        value = self.tree.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, "must be text; put it in quotes")
        if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value or ""):
            raise self.error(key, "contains a line break or another control character")
        return value or ""

    def flag(self, key: str) -> bool:
        value = self.tree.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(key, "must be true or false")
        return bool(value)

    def texts(self, key: str) -> list[str]:
        return self._texts(key, self.tree.get(key))

    def lists(self, key: str) -> dict[str, list[str]]:
        """Return a map of lists of text."""
        return {name: self._texts(f"{key}.{name}", value) for name, value in self.below(key).items()}

    def below(self, key: str) -> dict[str, Any]:
        value = self.tree.get(key) or {}
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise self.error(key, "must be a map")
        return value

    def path(self, key: str) -> Path | None:
        """Return the path, which is relative to the folder of the file."""
        text = self.text(key)
        return Path(os.path.normpath(self.file.absolute().parent / text)) if text else None

    def content(self, key: str) -> bytes | None:
        """Return the content of the file `key` or of `key`-data (Base64); None if neither is set."""
        encoded = self.tree.get(f"{key}-data")
        path = self.path(key)
        if encoded is None or encoded == "":
            try:
                return path.read_bytes() if path else None
            except OSError as error:
                raise self.error(key, f"is {path}, which cannot be read: {error.strerror}") from error
        if path is not None:
            raise self.error(key, f"and {key}-data are both set; remove one of them")
        try:
            return base64.b64decode("".join(encoded.split()), validate=True)
        except (ValueError, AttributeError) as error:
            raise self.error(f"{key}-data", "is not valid Base64") from error

    def place(self, key: str) -> str:
        """Return the file and the line of a key, as the start of a message."""
        start = next((n for n, line in enumerate(self.source.lines) if _has(line, "name", self.name)), 0)
        value = self.tree.get(key.partition(".")[0])
        lines = [
            n
            for n, line in enumerate(self.source.lines)
            if _has(line, key.rpartition(".")[2], value if isinstance(value, str) and value.isprintable() else "")
        ]
        nearest = min(lines, key=lambda n: abs(n - start), default=None)
        return f"{self.file}:" + ("" if nearest is None else f"{nearest + 1}:")

    def error(self, key: str, what: str) -> LauncherError:
        """Return the error for a setting: the file, the line, the key, and `what` is wrong."""
        return LauncherError(f"{self.place(key)} {key} of the {self.kind.removesuffix('s')} {self.name} {what}.")

    def _texts(self, key: str, value: Any) -> list[str]:
        texts = value or []
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise self.error(key, "must be a list of text")
        if any(re.search(r"[\x00-\x08\x0a-\x1f\x7f]", text) for text in texts):
            raise self.error(key, "contains a line break or another control character")
        return texts


def _has(line: str, key: str, value: str) -> bool:
    """Return whether a line of YAML or JSON sets the key to a text that begins with `value`."""
    return re.search(rf"""(^|[\s{{,-])["']?{re.escape(key)}["']?\s*:\s*["']?{re.escape(value)}""", line) is not None


def _parse(data: bytes, file: Path) -> Any:
    import yaml

    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):  # JSON may be indented with tabs
        try:
            return json.loads(data)
        except ValueError:
            pass  # YAML may begin with {, too
    try:
        return safe_loader()(data).get_single_data()
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        says = " ".join(str(error).split()).replace('in "<byte string>", ', "at ")
        raise LauncherError(f"The kubeconfig {file} is not valid YAML: {says}.") from error


def _context(sources: list[_Source], context: str | None, where: str) -> _Entry:
    """Return the context. With several files, the first current-context applies, and the first entry of each name."""
    name = context or next(filter(None, (source.tree.get("current-context") for source in sources)), None)
    contexts = {entry.name: entry for source in reversed(sources) for entry in source.entries("contexts")}
    if name is None:
        choose = "Choose one with --context, or set it: kubectl config use-context NAME."
        add = "It has no context at all; to add one on GKE: gcloud container clusters get-credentials NAME."
        raise LauncherError(f"{where} has no current context.", choose if contexts else add)
    if str(name) in contexts:
        return contexts[str(name)]
    near = get_close_matches(str(name), contexts, n=1)
    guess = f'did you mean "{near[0]}"?' if near else f"it has {', '.join(reversed(contexts)) or 'none'}."
    raise LauncherError(f'{where} has no context "{name}"; {guess}', "kubectl config get-contexts lists them.")


def _named(sources: list[_Source], kind: str, name: str, context: _Entry) -> _Entry:
    """Return the cluster or the user of the context."""
    for source in sources:
        for entry in source.entries(kind):
            if entry.name == name:
                return entry
    noun = kind.removesuffix("s")
    what = f'names the {noun} "{name}", which the kubeconfig does not have' if name else f"has no {noun}"
    raise LauncherError(f"{context.place(noun)} the context {context.name} {what}.", "kubectl config view shows it.")


def _in_cluster(context: str | None, namespace: str | None) -> Access:
    if context is not None or "KUBERNETES_SERVICE_HOST" not in os.environ:
        unnamed = "KUBECONFIG names no file" if os.environ.get("KUBECONFIG") else "There is no ~/.kube/config"
        missing = nowhere() or unnamed
        raise NoCluster(f"{missing}, so there is no cluster to connect to.", _NO_KUBECONFIG)
    # Imported here, because it takes 0.5 s, and a user's machine does not need it.
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.incluster_config import InClusterConfigLoader

    token, certificate = _SERVICE_ACCOUNT / "token", _SERVICE_ACCOUNT / "ca.crt"
    configuration = Configuration()
    try:
        InClusterConfigLoader(str(token), str(certificate)).load_and_set(configuration)
        inside = (_SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
        ca = certificate.read_bytes()
    except (OSError, ConfigException) as error:
        raise LauncherError(f"This pod's service account cannot be used: {str(error).rstrip('.')}.") from error
    access = Access(
        configuration.host,
        context="in-cluster",
        cluster="in-cluster",
        user="",
        namespace=namespace or os.environ.get("POD_NAMESPACE") or inside or "default",
        # The token is read again for each request: it is renewed in place.
        identity=Identity(token_of=identity.file_token(token, "", "This pod's service account cannot be used")),
        ca=ca,
        proxy=proxies.of_environment(configuration.host),
    )
    access.identity.current()
    return access


def _identity(server: str, user: _Entry, cluster: _Entry) -> Identity:
    """Return the identity of a user. Raises LauncherError for what kubectl refuses, too."""
    as_user, uid, groups, extra = (
        user.text("as"),
        user.text("as-uid"),
        user.texts("as-groups"),
        user.lists("as-user-extra"),
    )
    if not as_user and (uid or groups or extra):
        key = "as-uid" if uid else "as-groups" if groups else "as-user-extra"
        raise user.error(key, "is set, but not the user (as)")
    impersonation = identity.impersonation(as_user, uid, groups, extra) if as_user else []
    certificate, key_data = user.content("client-certificate"), user.content("client-key")
    if certificate and not key_data:
        raise user.error("client-certificate", "is set, but not client-key or client-key-data")
    token, name, password = user.text("token"), user.text("username"), user.text("password")
    if token and (name or password):
        raise user.error("token", "and username are both set; remove one of them")
    if urlsplit(server).scheme == "http":  # kubectl sends no credentials without TLS
        return Identity(impersonation)
    pair = (certificate, key_data) if certificate and key_data else None
    where = f"The kubeconfig {user.file}"
    token_of = None
    if file := user.path("tokenFile"):
        if name or password:
            raise user.error("tokenFile", "and username are both set; remove one of them")
        token_of = identity.file_token(file, token, where)
    elif token:
        token_of = partial(str, token)
    basic = (name, password) if name else None
    plugin = None
    if user.below("exec"):
        plugin = _plugin(server, user, cluster)
        if token_of or basic or pair:  # these take precedence
            plugin = None
    provider = user.below("auth-provider")
    if provider and not (token_of or basic):
        if provider.get("name") != "oidc":
            raise user.error(
                "auth-provider",
                f"is {provider.get('name')}, which kubectl removed in 1.26; use a credential plugin (on GKE: gcloud "
                "container clusters get-credentials NAME)",
            )
        token_of = identity.oidc_token(lambda: _id_token(user), user.name, where)
    return Identity(impersonation, token_of, basic, pair, plugin)


def _id_token(user: _Entry) -> str:
    """Return the ID token that is in the kubeconfig now, or ""."""
    for entry in _Source(user.file).entries("users"):
        config = entry.below("auth-provider").get("config")
        if entry.name == user.name and isinstance(config, dict):
            return str(config.get("id-token") or "")
    return ""


def _plugin(server: str, user: _Entry, cluster: _Entry) -> Plugin:
    if user.below("auth-provider"):
        raise user.error("auth-provider", "and exec are both set; remove one of them")
    given = _Entry(user.source, "users", user.name, user.below("exec"))
    command, version = given.text("command"), given.text("apiVersion")
    if not command:
        raise user.error("exec", "has no command")
    if version not in _PLUGIN_VERSIONS:
        raise user.error("exec", f"needs apiVersion: {_PLUGIN_VERSIONS[0]}")
    mode = given.text("interactiveMode") or ("IfAvailable" if version.endswith("v1beta1") else "")
    if mode not in ("IfAvailable", "Never", "Always"):
        raise user.error("exec", "needs interactiveMode: IfAvailable, Never or Always")
    variables = given.tree.get("env") or []
    if not isinstance(variables, list) or not all(
        isinstance(item, dict) and isinstance(item.get("name"), str) and isinstance(item.get("value", ""), str)
        for item in variables
    ):
        raise given.error("env", "must be a list of entries, each with a name and a value")
    if os.sep in command:
        command = os.path.normpath(given.file.absolute().parent / command)
    return Plugin(
        [command, *given.texts("args")],
        {item["name"]: item.get("value", "") for item in variables},
        version,
        mode,
        str(given.tree.get("installHint") or ""),
        _cluster_info(server, cluster) if given.flag("provideClusterInfo") else None,
        str(given.file),
    )


def _cluster_info(server: str, cluster: _Entry) -> dict[str, Any]:
    """Return what a credential plugin gets about its cluster: `Cluster` of client.authentication.k8s.io."""
    extensions = cluster.tree.get("extensions")
    named = [each for each in extensions or [] if isinstance(each, dict) and each.get("name") == _PLUGIN_EXTENSION]
    info = {
        "tls-server-name": cluster.text("tls-server-name"),
        "insecure-skip-tls-verify": cluster.flag("insecure-skip-tls-verify"),
        "certificate-authority-data": base64.b64encode(cluster.content("certificate-authority") or b"").decode(),
        "proxy-url": cluster.text("proxy-url"),
        "disable-compression": cluster.flag("disable-compression"),
    }
    config = named[0].get("extension") if named else None
    return {"server": server, **{key: value for key, value in info.items() if value}, "config": config}


def _check_encryption(server: str, cluster: _Entry, user: _Entry) -> None:
    """Raise LauncherError if the context has credentials for a server without TLS on a network.

    kubectl connects without the credentials. A client certificate is not sent without TLS.
    """
    sent = [key for key in _SENT_CREDENTIALS if user.tree.get(key)]
    url = urlsplit(server)
    if url.scheme != "http" or not sent or is_loopback(url.hostname):
        return
    raise LauncherError(
        f"{cluster.place('server')} The server of the cluster {cluster.name} is {server}, so the credentials of the "
        f"user {user.name} (users.{sent[0]}) would be sent unencrypted.",
        "Use a URL that begins with https://. Addresses of this machine, such as http://127.0.0.1:8001 of kubectl "
        "proxy, are accepted.",
    )
