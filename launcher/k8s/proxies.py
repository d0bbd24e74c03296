"""The proxy of a connection to an API server, chosen as kubectl chooses it.

The cluster's `proxy-url` in the kubeconfig applies to every address. Otherwise the environment applies, as Go's package
golang.org/x/net/http/httpproxy reads it: HTTPS_PROXY or HTTP_PROXY, by the scheme of the server, and NO_PROXY.
ALL_PROXY has no effect, and an address of this machine is never reached through the environment's proxy.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from launcher.errors import LauncherError
from launcher.loopback import is_loopback

_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}


@dataclass(frozen=True)
class Proxy:
    """A proxy. `source` is the setting that selects it, such as "HTTPS_PROXY". `password` is "" if there is none."""

    scheme: str
    host: str
    port: int
    source: str
    username: str | None = None
    password: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        """The URL without the credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_socks(self) -> bool:
        return self.scheme.startswith("socks")


def of_cluster(url: str, place: str) -> Proxy:
    """Return the proxy for the `proxy-url` of a cluster. `place` is the start of the error, up to "the proxy-url …".

    Raises LauncherError for a URL that kubectl refuses, too: without a scheme, or with another one than these three.
    """
    scheme = url.partition("://")[0].lower()
    if scheme not in ("http", "https", "socks5"):
        raise LauncherError(
            f"{place} is {shown(url)}; it must begin with http://, https:// or socks5:// (kubectl accepts no other).",
            "With socks5://, the proxy resolves the name of the API server.",
        )
    return _parse(url, "proxy-url", f"{place} is")


def of_environment(server: str) -> Proxy | None:
    """Return the proxy of the environment for the URL of an API server, or None for a direct connection.

    Raises LauncherError if the variable is not a valid URL of a proxy. Without a scheme, it is http://.
    """
    target = urlsplit(server)
    if target.scheme == "https":
        given = {"HTTPS_PROXY": os.environ.get("HTTPS_PROXY"), "https_proxy": os.environ.get("https_proxy")}
    else:
        given = {"HTTP_PROXY": os.environ.get("HTTP_PROXY"), "http_proxy": os.environ.get("http_proxy")}
    name, text = next(((name, text) for name, text in given.items() if text), ("", ""))
    host, port = (target.hostname or "").lower(), target.port or _PORTS[target.scheme]
    if not text or is_loopback(host):
        return None
    if _is_direct(host, port, os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""):
        return None
    try:
        complete = bool(urlsplit(text).netloc and urlsplit(text).scheme)
    except ValueError:
        complete = False
    return _parse(text if complete else f"http://{text}", name, f"{name} is")


def _parse(url: str, source: str, place: str) -> Proxy:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise LauncherError(f"{place} {shown(url)}, which is not a valid URL: {error}.") from error
    # Python's parser removes spaces, and keeps such percent signs; PySocks sends no user without a password.
    bad = re.search(r"\s|%(?![0-9a-fA-F]{2})|^socks[^/]*//[^:@]+:?@", url)
    if parts.scheme not in _PORTS or not parts.hostname or bad:
        raise LauncherError(
            f"{place} {shown(url)}, which is not the URL of a proxy.",
            "Use http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT, with USER:PASSWORD@ before the host if "
            "the proxy requires it.",
        )
    username = None if parts.username is None else unquote(parts.username)
    return Proxy(
        parts.scheme, parts.hostname, port or _PORTS[parts.scheme], source, username, unquote(parts.password or "")
    )


def shown(url: str) -> str:
    """Return the URL for a message, without credentials."""
    before, at, after = url.rpartition("@")
    return f'"{before[: before.find("://") + 3] if "://" in before else ""}…@{after}"' if at else f'"{url}"'


def _is_direct(host: str, port: int, no_proxy: str) -> bool:
    """Return whether NO_PROXY lists the host: `*`, an address, a network, or a domain, each but `*` and networks also
    with a port. "example.com" includes the domain's hosts, and ".example.com" is only these."""
    address = _address(host)
    for entry in (entry.strip().lower() for entry in no_proxy.split(",")):
        if entry == "*":
            return True
        if "/" in entry:
            try:
                network = ipaddress.ip_network(entry, strict=False)
            except ValueError:
                continue
            if address is not None and address in network:
                return True
            continue
        name, limit = _split_port(entry)
        if not name or (limit and limit != str(port)):
            continue
        if address is not None:
            if _address(name) == address:
                return True
            continue
        name = name.removeprefix("*") if name.startswith("*.") else name
        if host.endswith(name if name.startswith(".") else f".{name}") or host == name:
            return True
    return False


def _split_port(entry: str) -> tuple[str, str]:
    """Return the host without brackets, and the port or ""."""
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        return host, rest.removeprefix(":")
    host, colon, port = entry.rpartition(":")
    return (host, port) if colon and ":" not in host else (entry, "")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:  # a name
        return None
    return getattr(address, "ipv4_mapped", None) or address
