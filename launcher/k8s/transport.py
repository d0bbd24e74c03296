"""Connections to an API server: TLS, the client certificate and the proxy of a launcher.k8s.kubeconfig.Access."""

from __future__ import annotations

import re
import socket
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from launcher.errors import LauncherError

if TYPE_CHECKING:
    import urllib3

    from launcher.k8s.identity import Certificate
    from launcher.k8s.kubeconfig import Access

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_CONNECTIONS = 8


def pool_manager(access: Access, certificate: Certificate | None) -> urllib3.PoolManager:
    """Return urllib3's pool of connections to the API server, with the client certificate.

    Raises LauncherError if a certificate or a key is not valid.
    """
    import urllib3

    context = _tls(access, certificate)
    # With a name for the server, kubectl expects it of an https proxy, too.
    options: dict[str, Any] = {"ssl_context": context, "maxsize": _CONNECTIONS, "retries": False}
    options |= {"server_hostname": access.server_name} if access.server_name else {}
    if not access.verify:
        # It would be printed for each request. The user has chosen this in the kubeconfig.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    proxy = access.proxy
    if proxy is None:
        return urllib3.PoolManager(**options)
    if proxy.is_socks:
        from urllib3.contrib.socks import SOCKSProxyManager

        # Go's client lets the proxy resolve names, with socks5 too; urllib3 with socks5h only.
        url = proxy.url.replace("socks5://", "socks5h://", 1)
        return SOCKSProxyManager(url, proxy.username, proxy.password, **options)
    if proxy.username is not None:
        credentials = urllib3.util.make_headers(proxy_basic_auth=f"{proxy.username}:{proxy.password}")
        options["proxy_headers"] = credentials
    if access.server_name and access.verify:
        options["proxy_assert_hostname"] = access.server_name
    return urllib3.ProxyManager(proxy.url, proxy_ssl_context=context, **options)


def connect(pools: urllib3.PoolManager, server: str, seconds: float) -> socket.socket:
    """Return a new connection to the API server for a protocol other than HTTP, with TLS if the server has it."""
    pool = pools.connection_from_url(server)
    connection: Any = pool._new_conn()
    connection.timeout = seconds
    if pool.proxy is not None:
        url = urlsplit(server)
        port = url.port or (443 if url.scheme == "https" else 80)
        connection.set_tunnel(url.hostname, port, pool.proxy_headers, scheme=pool.proxy.scheme or "http")
    connection.connect()
    # An SSLSocket, or urllib3's SSLTransport with the same methods in a TLS connection to a proxy.
    connected: socket.socket = connection.sock
    connection.sock = None
    connected.settimeout(None)
    return connected


def _tls(access: Access, certificate: Certificate | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif access.ca is None:
        context.load_default_certs()
    else:
        # As in Go's client, each certificate is trusted, not only the roots.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        certificates = _CERTIFICATE.findall(access.ca)
        try:
            context.load_verify_locations(cadata="\n".join(pem.decode("ascii") for pem in certificates))
        except (ssl.SSLError, ValueError) as error:
            raise LauncherError(
                f"The certificate-authority of the cluster {access.cluster} has no valid certificate (PEM)."
            ) from error
    if certificate is not None:
        with tempfile.TemporaryDirectory(prefix="slipway-") as folder:  # `ssl` reads only files
            file, key = (Path(folder, name) for name in ("certificate", "key"))
            file.write_bytes(certificate[0])
            key.write_bytes(certificate[1])
            try:
                # Without a password, Python would ask for that of an encrypted key.
                context.load_cert_chain(file, key, password="")
            except (ssl.SSLError, ValueError) as error:
                raise LauncherError(
                    f"The client certificate or key of the user {access.user} is not valid: it must be PEM, the key "
                    "must belong to the certificate, and it must have no password."
                ) from error
    return context
