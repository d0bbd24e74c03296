"""Kubeconfigs and environments, and what arrives at the servers of tests/unit/address_servers.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PLUGIN_V1 = "client.authentication.k8s.io/v1"
API = "https://127.0.0.1:$HTTPS"
NAMED = "https://api.invalid:$HTTPS"  # reached only through a proxy
ANY = "https://0.0.0.0:$HTTPS"  # this machine, but not a loopback address
TOKEN = {"token": "secret"}
DIRECT = ["HTTPS, authorization: Bearer secret"]
BY_PROXY = ["PROXY CONNECT api.invalid:HTTPS", *DIRECT]


@dataclass(frozen=True)
class Case:
    """A kubeconfig and an environment, and what arrives. $NAME is the port of a server, $DIR a folder with files.

    refused: the start of the launcher's error. kubectl then sends nothing either, unless `kubectl` has what it sends.
    """

    server: str = API
    cluster: dict[str, Any] = field(default_factory=dict)
    user: dict[str, Any] = field(default_factory=lambda: TOKEN)
    env: dict[str, str] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    refused: str = ""
    kubectl: list[str] | None = None
    trusted: bool = True  # whether the kubeconfig has the authority of the servers


def proxied(url: str, *sent: str, server: str = NAMED, **more: Any) -> Case:
    return Case(server, {"proxy-url": url}, sent=[*sent, *([] if more else DIRECT)], **more)


def env(sent: list[str], refused: str = "", kubectl: list[str] | None = None, **variables: str) -> Case:
    return Case(NAMED, env=variables, sent=sent, refused=refused, kubectl=kubectl)


def no_proxy(value: str, *, direct: bool, server: str = ANY) -> Case:
    """A direct connection to 0.0.0.0 arrives; one to a name of .invalid does not."""
    reached = DIRECT if server == ANY else []
    through = [f"PROXY CONNECT {'0.0.0.0' if server == ANY else 'api.invalid'}:HTTPS", *DIRECT]
    unreachable = (
        "" if reached or not direct else "The API server of the context lab (https://api.invalid:$HTTPS) does not"
    )
    return Case(
        server,
        env={"HTTPS_PROXY": "http://127.0.0.1:$PROXY", "NO_PROXY": value},
        sent=reached if direct else through,
        refused=unreachable,
    )


def plugin(script: str, **more: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": PLUGIN_V1, "command": script, "interactiveMode": "Never", **more}}


def of_user(sent: str, /, **user: Any) -> Case:
    return Case(user=user, sent=[f"HTTPS{', ' if sent else ''}{sent}"])


def refused_user(message: str, /, **user: Any) -> Case:
    return Case(user=user, refused=message)


ME = "authorization: Bearer secret, impersonate-user: bot"

CASES: dict[str, Case] = {
    # --- who ---
    "token": of_user("authorization: Bearer secret", **TOKEN),
    "token of a file": of_user("authorization: Bearer from-file", tokenFile="token"),
    "token of a file, by a full path": of_user("authorization: Bearer from-file", tokenFile="$DIR/token"),
    "a file before a token": of_user("authorization: Bearer from-file", tokenFile="token", token="secret"),
    "a token if the file is missing": of_user("authorization: Bearer secret", tokenFile="none", token="secret"),
    "a token if the file is empty": of_user("authorization: Bearer secret", tokenFile="empty", token="secret"),
    "an empty token file": refused_user(
        "The kubeconfig $DIR/config: the token file $DIR/empty is empty", tokenFile="empty"
    ),
    "a missing token file": refused_user(
        "The kubeconfig $DIR/config: the token file $DIR/none cannot be", tokenFile="none"
    ),
    "a token with a line break": refused_user(
        "$DIR/config:LINE: token of the user me contains a line break", token="a\nb"
    ),
    "a token that is a number": refused_user("$DIR/config:LINE: token of the user me must be text", token=123),
    "basic": of_user("authorization: Basic bWU6cMO8Og==", username="me", password="pü:"),
    "basic without a password": of_user("authorization: Basic bWU6", username="me"),
    "basic and a token": refused_user("$DIR/config:LINE: token of the user me and username are", username="u", **TOKEN),
    "certificate files": of_user(
        "certificate: alice", **{"client-certificate": "alice.crt", "client-key": "alice.key"}
    ),
    "certificate data": of_user(
        "certificate: alice", **{"client-certificate-data": "$B64alice.crt", "client-key-data": "$B64alice.key"}
    ),
    "certificate and token": of_user(
        "certificate: alice, authorization: Bearer secret",
        **{"client-certificate": "alice.crt", "client-key": "alice.key", **TOKEN},
    ),
    "empty data and a file": of_user(
        "certificate: alice",
        **{"client-certificate-data": "", "client-certificate": "alice.crt", "client-key": "alice.key"},
    ),
    "certificate without a key": refused_user(
        "$DIR/config:LINE: client-certificate of the user me is set, but not client-key",
        **{"client-certificate": "alice.crt"},
    ),
    "a missing certificate": refused_user(
        "$DIR/config:LINE: client-certificate of the user me is $DIR/none, which cannot be read: No such file",
        **{"client-certificate": "none", "client-key": "alice.key"},
    ),
    "certificate data and file": refused_user(
        "$DIR/config:LINE: client-certificate of the user me and client-certificate-data are both set",
        **{"client-certificate-data": "$B64alice.crt", "client-certificate": "alice.crt", "client-key": "alice.key"},
    ),
    "an encrypted key": refused_user(
        "The client certificate or key of the user me is not valid",
        **{"client-certificate": "alice.crt", "client-key": "locked.key"},
    ),
    "data that is not Base64": refused_user(
        "$DIR/config:LINE: client-certificate-data of the user me is not valid Base64",
        **{"client-certificate-data": "%%", "client-key": "alice.key"},
    ),
    "as": of_user(ME, **TOKEN, **{"as": "bot"}),
    "as, in another alphabet": of_user("authorization: Bearer secret, impersonate-user: bøt", **TOKEN, **{"as": "bøt"}),
    "as-groups": of_user(
        "authorization: Bearer secret, impersonate-group: a, impersonate-group: b:c, impersonate-user: bot",
        **TOKEN,
        **{"as": "bot", "as-groups": ["a", "b:c"]},
    ),
    "as-uid": of_user(
        "authorization: Bearer secret, impersonate-uid: 7, impersonate-user: bot",
        **TOKEN,
        **{"as": "bot", "as-uid": "7"},
    ),
    "as-user-extra": of_user(
        "authorization: Bearer secret, impersonate-extra-example.com%2froles: x, "
        "impersonate-extra-example.com%2froles: y, impersonate-extra-r: z, impersonate-user: bot",
        **TOKEN,
        **{"as": "bot", "as-user-extra": {"example.com/roles": ["x", "y"], "R": ["z"]}},
    ),
    "as, with a certificate": of_user(
        "certificate: alice, impersonate-user: bot",
        **{"client-certificate": "alice.crt", "client-key": "alice.key", "as": "bot"},
    ),
    "as, without TLS": Case(
        "http://127.0.0.1:$HTTP",
        user={"as": "bot", "as-groups": ["a"]},
        sent=["HTTP, impersonate-group: a, impersonate-user: bot"],
    ),
    "groups without a user": refused_user(
        "$DIR/config:LINE: as-groups of the user me is set, but not the user (as)", **TOKEN, **{"as-groups": ["a"]}
    ),
    "groups that are text": refused_user(
        "$DIR/config:LINE: as-groups of the user me must be a list", **TOKEN, **{"as": "bot", "as-groups": "a"}
    ),
    "no credentials are sent without TLS": Case("http://127.0.0.1:$HTTP", sent=["HTTP"]),
    # --- credential plugins ---
    "a plugin": of_user("authorization: Bearer fresh", **plugin("./plugin")),
    "a plugin of v1beta1": of_user(
        "authorization: Bearer fresh",
        exec={
            "apiVersion": f"{PLUGIN_V1}beta1",
            "command": "./plugin",
            "env": [{"name": "VERSION", "value": "v1beta1"}],
        },
    ),
    "a plugin, in the current folder": of_user("authorization: Bearer $CWD", **plugin("./where")),
    "a plugin that gets the cluster": Case(
        cluster={
            "proxy-url": "http://127.0.0.1:$PROXY",
            "extensions": [{"name": f"{PLUGIN_V1[:-3]}/exec", "extension": {"audience": "x"}}],
        },
        user=plugin("./info", provideClusterInfo=True),
        sent=["PROXY CONNECT 127.0.0.1:HTTPS", "HTTPS, authorization: Bearer $INFO"],
    ),
    "a plugin's certificate": of_user("certificate: alice", **plugin("./certificate")),
    "a token before a plugin": of_user("authorization: Bearer secret", **TOKEN, **plugin("./missing")),
    "a certificate before a plugin": of_user(
        "certificate: alice", **plugin("./missing"), **{"client-certificate": "alice.crt", "client-key": "alice.key"}
    ),
    "a missing plugin": refused_user(
        "The credential plugin of $DIR/config failed: $DIR/missing is not installed.", **plugin("./missing")
    ),
    "a failing plugin": refused_user(
        "The credential plugin of $DIR/config failed: $DIR/failing ended with the exit code 3. No login",
        **plugin("./failing"),
    ),
    "a plugin that prints text": refused_user(
        "The credential plugin of $DIR/config failed: it did not print an", **plugin("./text")
    ),
    "a plugin of another version": refused_user(
        "The credential plugin of $DIR/config failed: it printed the version client.authentication.k8s.io/v1, not",
        exec={"apiVersion": f"{PLUGIN_V1}beta1", "command": "./plugin"},
    ),
    "a plugin that asks": refused_user(
        "The credential plugin of $DIR/config failed: it must ask a question (interactiveMode: Always)",
        **plugin("./plugin", interactiveMode="Always"),
    ),
    "a plugin without interactiveMode": refused_user(
        "$DIR/config:LINE: exec of the user me needs interactiveMode: ",
        exec={"apiVersion": PLUGIN_V1, "command": "./plugin"},
    ),
    "a plugin of v1alpha1": refused_user(
        "$DIR/config:LINE: exec of the user me needs apiVersion: ",
        **plugin("./plugin", apiVersion=f"{PLUGIN_V1}alpha1"),
    ),
    "auth-provider oidc": of_user(
        "authorization: Bearer $JWT",
        **{"auth-provider": {"name": "oidc", "config": {"id-token": "$JWT", "client-id": "c", "idp-issuer-url": API}}},
    ),
    "auth-provider oidc, expired": refused_user(
        "The kubeconfig $DIR/config: the ID token of the user me (auth-provider oidc) has expired.",
        **{
            "auth-provider": {
                "name": "oidc",
                "config": {"id-token": "$OLDJWT", "client-id": "c", "idp-issuer-url": API},
            }
        },
    ),
    "auth-provider gcp": refused_user(
        "$DIR/config:LINE: auth-provider of the user me is gcp, which kubectl removed",
        **{"auth-provider": {"name": "gcp"}},
    ),
    # --- the server ---
    "a path": Case(f"{API}/k8s/clusters/c-1/", sent=DIRECT),
    "no scheme": Case("127.0.0.1:$HTTPS", refused='The kubeconfig $DIR/config gives "127.0.0.1:'),
    "a user in the server's URL": Case(
        "https://u:p@127.0.0.1:$HTTPS",
        refused='The kubeconfig $DIR/config gives "https://…@127.0.0.1:$HTTPS" as the server of the cluster c; it must',
        kubectl=["HTTPS, authorization: Basic dTpw"],
    ),
    "authority's data": Case(cluster={"certificate-authority-data": "$B64authority.crt"}, trusted=False, sent=DIRECT),
    "authority's data and file": Case(
        cluster={"certificate-authority-data": "$B64authority.crt"},
        refused="$DIR/config:LINE: certificate-authority of the cluster c and certificate-authority-data are both set",
    ),
    "the server's own certificate as the authority": Case(
        cluster={"certificate-authority": "server.crt"}, trusted=False, sent=DIRECT
    ),
    "no authority": Case(
        trusted=False, refused=f"The context lab ({API}) presents a certificate that the kubeconfig does"
    ),
    "another authority": Case(
        cluster={"certificate-authority": "other/authority.crt"},
        trusted=False,
        refused=f"The context lab ({API}) presents a certificate that the kubeconfig does not trust: ",
    ),
    "an authority that is text": Case(
        cluster={"certificate-authority": "token"},
        trusted=False,
        refused="The certificate-authority of the cluster c has no",
    ),
    "insecure": Case(cluster={"insecure-skip-tls-verify": True}, trusted=False, sent=DIRECT),
    "insecure, with an authority": Case(
        cluster={"insecure-skip-tls-verify": True},
        refused="$DIR/config:LINE: insecure-skip-tls-verify of the cluster c is true",
    ),
    "another name": Case("https://127.0.0.1:$WRONG", refused="The context lab (https://127.0.0.1:$WRONG) presents a"),
    "tls-server-name": Case(
        "https://127.0.0.1:$WRONG", {"tls-server-name": "named.invalid"}, sent=["WRONG, authorization: Bearer secret"]
    ),
    "a wrong tls-server-name": Case(
        cluster={"tls-server-name": "x.invalid"}, refused=f"The context lab ({API}) presents"
    ),
    "disable-compression": Case(cluster={"disable-compression": True}, sent=[f"{DIRECT[0]}, uncompressed"]),
    # --- proxy-url ---
    "proxy": proxied("http://127.0.0.1:$PROXY", "PROXY CONNECT api.invalid:HTTPS"),
    "proxy with a password": proxied("http://u:p%40%3A@127.0.0.1:$PROXY", "PROXY CONNECT api.invalid:HTTPS u:p@:"),
    "proxy with TLS": proxied("https://127.0.0.1:$TLSPROXY", "TLSPROXY CONNECT api.invalid:HTTPS"),
    "proxy with TLS and a password": proxied(
        "https://u:p@127.0.0.1:$TLSPROXY", "TLSPROXY CONNECT api.invalid:HTTPS u:p"
    ),
    "proxy with TLS, and another authority": Case(
        NAMED,
        {"proxy-url": "https://127.0.0.1:$TLSPROXY", "certificate-authority": "other/authority.crt"},
        refused="The proxy https://127.0.0.1:$TLSPROXY (proxy-url) of the context lab presents a certificate that the",
    ),
    "socks5": proxied("socks5://127.0.0.1:$SOCKS5", "SOCKS5 api.invalid:HTTPS"),
    "socks5 with a password": proxied("socks5://u:p%40%3A@127.0.0.1:$SOCKS5", "SOCKS5 api.invalid:HTTPS u:p@:"),
    "socks5 with a user only": proxied(
        "socks5://u@127.0.0.1:$SOCKS5",
        refused='$DIR/config:LINE: the proxy-url of the cluster c is "socks5://…@127.0.0.1:$SOCKS5", which is not the',
        kubectl=["SOCKS5 api.invalid:HTTPS u:", *DIRECT],
    ),
    "proxy to an address": proxied("http://127.0.0.1:$PROXY", "PROXY CONNECT 0.0.0.0:HTTPS", server=ANY),
    "socks5 to an address": proxied("socks5://127.0.0.1:$SOCKS5", "SOCKS5 0.0.0.0:HTTPS", server=ANY),
    "proxy to this machine": proxied("http://127.0.0.1:$PROXY", "PROXY CONNECT 127.0.0.1:HTTPS", server=API),
    "proxy without TLS": Case(
        "http://api.invalid:$HTTP",
        {"proxy-url": "http://u:p@127.0.0.1:$PROXY"},
        user={"as": "x"},
        sent=["PROXY GET api.invalid:HTTP u:p", "HTTP, impersonate-user: x"],
    ),
    "socks5 without TLS": Case(
        "http://api.invalid:$HTTP",
        {"proxy-url": "socks5://127.0.0.1:$SOCKS5"},
        user={"as": "x"},
        sent=["SOCKS5 api.invalid:HTTP", "HTTP, impersonate-user: x"],
    ),
    "proxy-url before the environment": Case(
        NAMED,
        {"proxy-url": "socks5://127.0.0.1:$SOCKS5"},
        env={"HTTPS_PROXY": "http://127.0.0.1:$PROXY", "NO_PROXY": "*"},
        sent=["SOCKS5 api.invalid:HTTPS", *DIRECT],
    ),
    "proxy-url without a scheme": proxied(
        "127.0.0.1:$PROXY", refused="$DIR/config:LINE: the proxy-url of the cluster c is"
    ),
    "proxy-url of a name without a scheme": proxied(
        "localhost:$PROXY", refused='$DIR/config:LINE: the proxy-url of the cluster c is "localhost:'
    ),
    "proxy-url socks5h": proxied(
        "socks5h://127.0.0.1:$SOCKS5", refused="$DIR/config:LINE: the proxy-url of the cluster c is"
    ),
    "proxy-url socks4": proxied(
        "socks4://127.0.0.1:$SOCKS5", refused="$DIR/config:LINE: the proxy-url of the cluster c is"
    ),
    "proxy-url with a bad escape": proxied(
        "http://u:p%zz@127.0.0.1:$PROXY", refused="$DIR/config:LINE: the proxy-url of the cluster c is"
    ),
    "proxy-url without a host": proxied("http://", refused="$DIR/config:LINE: the proxy-url of the cluster c is"),
    "a proxy that refuses": proxied(
        "http://127.0.0.1:$REFUSING",
        "REFUSING CONNECT api.invalid:HTTPS",
        refused="The proxy http://127.0.0.1:$REFUSING (proxy-url) does not connect to the API server of the context "
        "lab (https://api.invalid:$HTTPS): it answers 502 Bad Gateway.",
    ),
    "a proxy that does not run": proxied(
        "http://127.0.0.1:1",
        refused="The proxy http://127.0.0.1:1 (proxy-url) does not connect to the API server of the context lab "
        "(https://api.invalid:$HTTPS): connection refused.",
    ),
    "a SOCKS proxy that does not run": proxied(
        "socks5://127.0.0.1:1",
        refused="The proxy socks5://127.0.0.1:1 (proxy-url) does not connect to the API server of the context lab "
        "(https://api.invalid:$HTTPS): connection refused.",
    ),
    "a SOCKS proxy without a name": proxied(
        "socks5://proxy.invalid:1",
        refused="The proxy socks5://proxy.invalid:1 (proxy-url) does not connect to the API server of the context lab "
        "(https://api.invalid:$HTTPS): its name cannot be resolved.",
    ),
    "a SOCKS proxy with another password": proxied(
        "socks5://u:wrong@127.0.0.1:$SOCKS5",
        refused="The proxy socks5://127.0.0.1:$SOCKS5 (proxy-url) does not connect to the API server of the context "
        "lab (https://api.invalid:$HTTPS): SOCKS5 authentication failed.",
    ),
    "a SOCKS proxy that does not reach the server": proxied(
        "socks5://u:far@127.0.0.1:$SOCKS5",
        refused="The proxy socks5://127.0.0.1:$SOCKS5 (proxy-url) does not connect to the API server of the context "
        "lab (https://api.invalid:$HTTPS): host unreachable.",
    ),
    # --- the environment's proxy ---
    "HTTPS_PROXY": env(BY_PROXY, HTTPS_PROXY="http://127.0.0.1:$PROXY"),
    "https_proxy": env(BY_PROXY, https_proxy="http://127.0.0.1:$PROXY"),
    "HTTPS_PROXY before https_proxy": env(
        BY_PROXY, HTTPS_PROXY="http://127.0.0.1:$PROXY", https_proxy="http://127.0.0.1:1"
    ),
    "an empty HTTPS_PROXY": env(BY_PROXY, HTTPS_PROXY="", https_proxy="http://127.0.0.1:$PROXY"),
    "HTTPS_PROXY without a scheme": env(BY_PROXY, HTTPS_PROXY="localhost:$PROXY"),
    "HTTPS_PROXY of an address without a scheme": env(BY_PROXY, HTTPS_PROXY="127.0.0.1:$PROXY"),
    "HTTPS_PROXY with a password, without a scheme": env(
        ["PROXY CONNECT api.invalid:HTTPS u:p", *DIRECT], HTTPS_PROXY="u:p@127.0.0.1:$PROXY"
    ),
    "HTTPS_PROXY with TLS": env(
        ["TLSPROXY CONNECT api.invalid:HTTPS", *DIRECT], HTTPS_PROXY="https://127.0.0.1:$TLSPROXY"
    ),
    "HTTPS_PROXY socks5": env(["SOCKS5 api.invalid:HTTPS", *DIRECT], HTTPS_PROXY="socks5://127.0.0.1:$SOCKS5"),
    "HTTPS_PROXY socks5h": env(
        ["SOCKS5 api.invalid:HTTPS u:p", *DIRECT], HTTPS_PROXY="socks5h://u:p@127.0.0.1:$SOCKS5"
    ),
    "HTTPS_PROXY ftp": env(
        [],
        refused='HTTPS_PROXY is "ftp://127.0.0.1:$PROXY", which is not',
        HTTPS_PROXY="ftp://127.0.0.1:$PROXY",
        kubectl=BY_PROXY,
    ),
    "HTTPS_PROXY with a space": Case(
        ANY,
        env={"HTTPS_PROXY": " http://127.0.0.1:$PROXY"},
        refused='HTTPS_PROXY is " http://127.0.0.1:$PROXY", which is not',
        kubectl=DIRECT,
    ),
    "HTTP_PROXY is not for TLS": Case(ANY, env={"HTTP_PROXY": "http://127.0.0.1:$PROXY"}, sent=DIRECT),
    "HTTP_PROXY": Case(
        "http://api.invalid:$HTTP",
        user={"as": "x"},
        env={"HTTP_PROXY": "127.0.0.1:$PROXY"},
        sent=["PROXY GET api.invalid:HTTP", "HTTP, impersonate-user: x"],
    ),
    "ALL_PROXY has no effect": Case(
        ANY, env={"ALL_PROXY": "http://127.0.0.1:$PROXY", "all_proxy": "socks5://x"}, sent=DIRECT
    ),
    "127.0.0.1 without a proxy": Case(env={"HTTPS_PROXY": "http://127.0.0.1:1"}, sent=DIRECT),
    "localhost without a proxy": Case(
        "https://localhost:$HTTPS", env={"HTTPS_PROXY": "http://127.0.0.1:1"}, sent=DIRECT
    ),
    "NO_PROXY *": no_proxy("x, *", direct=True),
    "NO_PROXY network": no_proxy("10.0.0.0/8,0.0.0.0/8", direct=True),
    "NO_PROXY other network": no_proxy("10.0.0.0/8", direct=False),
    "NO_PROXY address": no_proxy(" 0.0.0.0 ", direct=True),
    "NO_PROXY address and port": no_proxy("0.0.0.0:$HTTPS", direct=True),
    "NO_PROXY address and other port": no_proxy("0.0.0.0:1", direct=False),
    "NO_PROXY end of an address": no_proxy("0.0.0", direct=False),
    "NO_PROXY name": no_proxy("API.invalid", direct=True, server=NAMED),
    "NO_PROXY parent": no_proxy("invalid", direct=True, server=NAMED),
    "NO_PROXY parent with a dot": no_proxy(".invalid", direct=True, server=NAMED),
    "NO_PROXY parent with *.": no_proxy("*.invalid", direct=True, server=NAMED),
    "NO_PROXY name with a dot": no_proxy(".api.invalid", direct=False, server=NAMED),
    "NO_PROXY name with *.": no_proxy("*.api.invalid", direct=False, server=NAMED),
    "NO_PROXY part of a name": no_proxy("pi.invalid", direct=False, server=NAMED),
    "NO_PROXY name and port": no_proxy("api.invalid:$HTTPS", direct=True, server=NAMED),
    "NO_PROXY name and other port": no_proxy("api.invalid:6443", direct=False, server=NAMED),
    "no_proxy": Case(ANY, env={"https_proxy": "http://127.0.0.1:$PROXY", "no_proxy": "0.0.0.0"}, sent=DIRECT),
    "NO_PROXY before no_proxy": Case(
        NAMED, env={"https_proxy": "http://127.0.0.1:$PROXY", "no_proxy": "*", "NO_PROXY": "x"}, sent=BY_PROXY
    ),
}

LAB = {"contexts": [{"name": "lab", "context": {"cluster": "c", "user": "me"}}], "current-context": "lab"}
CLUSTER = {"clusters": [{"name": "c", "cluster": {"server": API, "certificate-authority": "$DIR/authority.crt"}}]}
USER = {"users": [{"name": "me", "user": TOKEN}]}
OTHERS = {
    "contexts": [{"name": "lab", "context": {"cluster": "x"}}, {"name": "prod", "context": {"cluster": "x"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://x.invalid"}}],
    "users": [{"name": "me", "user": {"as": "other"}}],
    "current-context": "prod",
}
ALL = {**LAB, **CLUSTER, **USER}

# The files of KUBECONFIG, separated by spaces, and the start of the launcher's error. Without one, DIRECT arrives.
FILES: dict[str, tuple[str, str]] = {
    "one": ("all", ""),
    "an empty one first": ("empty-file all", ""),
    "an empty one last": ("all empty-file", ""),
    "one of comments": ("comments all", ""),
    "a missing one": ("none all", ""),
    "/dev/null": ("/dev/null all", ""),
    "the same twice": ("all all", ""),
    "the first of each name": ("all others", ""),
    "split": ("lab user cluster", ""),
    "a path beside its file": ("lab user below/cluster", ""),
    "a token file beside its file": ("lab cluster below/user", ""),
    "a context without a cluster": ("alone all", "$DIR/alone: the context lab has no cluster."),
    "JSON with tabs": ("tabs", ""),
    "a byte order mark and CRLF": ("windows", ""),
    "null": ("null all", ""),
    "only an empty one": ("empty-file", "$DIR/empty-file has no current context."),
    "a folder": ("below all", "The kubeconfig $DIR/below cannot be read: Is a directory."),
    "UTF-16": ("utf16", ""),
    "no YAML": ("broken all", "The kubeconfig $DIR/broken is not valid YAML: "),
    "a list": ("list all", "$DIR/list is not a valid kubeconfig."),
    "another kind": ("pod all", "$DIR/pod is not a valid kubeconfig."),
    "another version": ("v2 all", "$DIR/v2 is not a valid kubeconfig."),
    "without a kind": ("bare", ""),
    "a list of text": (
        "texts all",
        "$DIR/texts is not a valid kubeconfig: clusters must be a list of entries, each with",
    ),
    "a name twice": ("twice", "$DIR/twice has two users with the name me; remove or rename one."),
    "no such context": ("cluster", "$DIR/cluster has no current context."),
    "no such cluster": (
        "lab user",
        '$DIR/lab:LINE: the context lab names the cluster "c", which the kubeconfig does not',
    ),
    "no such user": (
        "lab cluster",
        '$DIR/lab:LINE: the context lab names the user "me", which the kubeconfig does not',
    ),
    "no server": (
        "nothing all",
        'The kubeconfig $DIR/nothing gives "" as the server of the cluster c; it must be a URL',
    ),
}
