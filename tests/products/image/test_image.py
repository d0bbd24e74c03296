"""The image: its packages, its tag, the tools' commands and errors, the registry's answers, the overlay."""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from launcher.errors import LauncherError, UsageError
from launcher.products.image import tools
from launcher.products.image.build import plan
from launcher.products.image.context import ACCELERATORS, Context, read
from launcher.products.image.errors import explain
from launcher.products.image.overlay import Overlay
from launcher.products.image.registry import RegistryUnavailable, Repository, digest_of
from launcher.products.image.tools import Tool

ROOT = Path(__file__).parents[3]
DIGEST = "sha256:" + "0123456789abcdef" * 4
IMAGE = {"repository": "r.example.com/slipway", "tag": "0.1.0-cpu-1", "digest": DIGEST, "rayVersion": "2.60.0"}


# --- packages ---------------------------------------------------------------------------------------------------


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "docker" / f"{name}.txt").read_text()
    return dict(re.findall(r"^(\S+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", [*ACCELERATORS, "tools"])
def test_every_pin_has_hashes_and_nothing_else(name: str) -> None:
    text = (ROOT / "docker" / f"{name}.txt").read_text()
    listed = re.sub(r"^#.*\n", "", text).replace(" \\\n", "")
    lines = listed.splitlines()
    assert len(lines) == len(pins(name)) > 1
    for line in lines:
        assert re.fullmatch(r"[a-z0-9._-]+==\S+( ; .*)?( +--hash=sha256:[0-9a-f]{64})+", line), line


def test_the_build_installs_only_files_with_pinned_hashes() -> None:
    text = (ROOT / "docker/Dockerfile").read_text().replace("\\\n", "")
    installs = re.findall(r"(?:pip|uv pip) install [^&]*", text)
    assert len(installs) == 2
    assert all("--require-hashes" in command and " -r /opt/slipway/" in command for command in installs)
    assert re.search(r"^ARG BASE=python@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE}"}


def test_pinned_tools_are_those_of_the_tests() -> None:
    assert pins("tools").keys() == {"uv", "setuptools"}
    assert pins("tools")["setuptools"] == pins("constraints")["setuptools"]


def test_the_pins_are_those_that_the_project_requires() -> None:
    """pyproject.toml accepts every pinned version, so that an installed wheel and an image agree."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    tested = pins("constraints")
    for requirement in map(Requirement, requirements):
        if requirement.name != "slipway-launcher":
            assert tested[re.sub(r"[-_.]+", "-", requirement.name).lower()] in requirement.specifier, requirement


def test_extras_pin_the_tested_versions() -> None:
    """An installed launcher trains with the packages of the tests: see docs/decisions/0013-pinned-extras.md."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    tested = pins("constraints")
    for requirements in (extras[name] for name in extras if name != "dev"):
        for requirement in map(Requirement, requirements):
            expected = "" if requirement.name == "slipway-launcher" else f"=={tested[requirement.name]}"
            assert str(requirement.specifier) == expected, requirement


def test_actions_are_pinned_by_commit() -> None:
    uses = [
        line.partition("uses:")[2].strip()
        for path in [*(ROOT / ".github").rglob("*.yaml"), *(ROOT / ".github").rglob("*.yml")]
        for line in path.read_text().splitlines()
        if "uses:" in line
    ]
    assert len(uses) > 5
    assert [each for each in uses if not re.fullmatch(r"\./\S+|[\w-]+/[\w-]+@[0-9a-f]{40} # v[0-9.]+", each)] == []


@pytest.mark.parametrize("accelerator", ACCELERATORS)
def test_an_image_holds_what_training_needs_at_the_pinned_versions(accelerator: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = extras["train"] + (extras["tpu"] if accelerator == "tpu" else [])
    names = {re.split(r"[\[=<>]", line)[0] for line in wanted if not line.startswith("slipway-launcher")}
    pinned, tested = pins(accelerator), pins("constraints")
    assert names <= pinned.keys()
    other = {name: version for name, version in pinned.items() if tested.get(name) != version}
    assert all(re.match(r"nvidia-.*-cu12|jax-cuda12-", name) for name in other), other
    assert bool(other) == (accelerator == "gpu")
    # MaxText for TPUs requires the Python binding of NVIDIA's driver, for its monitoring of GPUs.
    nvidia = {name for name in pinned if "nvidia" in name}
    assert accelerator == "gpu" or nvidia == ({"nvidia-ml-py"} if accelerator == "tpu" else set())
    assert ("libtpu" in pinned) == (accelerator == "tpu")
    # MaxText for TPUs requires pytest.
    assert not pinned.keys() & {"pytest", "mypy", "pyhelm3", "slipway-launcher"} or accelerator == "tpu"


def test_one_version_of_uv() -> None:
    assert f"UV_VERSION := {pins('tools')['uv']}\n" in (ROOT / "Makefile").read_text()


# --- context and tag --------------------------------------------------------------------------------------------


def test_a_tag_follows_from_the_content() -> None:
    context = read("cpu")
    assert re.fullmatch(r"\d+\.\d+\.\d+-cpu-[0-9a-f]{12}", context.tag)
    assert read("cpu").tag == context.tag
    changed: list[Context] = [
        read("tpu"),
        read("cpu", "other:3.12"),
        *(replace(context, files={**context.files, name: b"# other\n"}) for name in context.files),
        replace(context, files={**context.files, "trainer/more.py": b""}),
    ]
    assert len({context.tag, *(other.tag for other in changed)}) == 1 + len(changed)


def test_a_context_is_what_the_dockerfile_copies() -> None:
    files = read("gpu").files
    assert {name.split("/")[0] for name in files} == {"docker", "trainer"}
    assert {name for name in files if name.startswith("docker/")} == {
        *("docker/Dockerfile", "docker/gpu.txt", "docker/tools.txt")
    }
    assert "trainer/__main__.py" in files
    assert not [name for name in files if "__pycache__" in name]


def test_a_context_is_the_same_files_everywhere(tmp_path: Path) -> None:
    read("cpu").write(tmp_path)
    paths = list(tmp_path.rglob("*"))
    assert {path.stat().st_mtime for path in paths} == {315532800}
    assert {oct(path.stat().st_mode & 0o7777) for path in paths} == {"0o644", "0o755"}


def test_the_base_is_known_without_naming_one() -> None:
    assert read("cpu").base.startswith("python@sha256:")
    assert read("cpu", "mine:1").base == "mine:1"


@pytest.mark.parametrize(
    ("repository", "push", "message"),
    [
        ("r.example.com/slipway:1", False, "it has a tag"),
        ("r.example.com:5000/slipway@" + DIGEST, False, "it has a tag"),
        ("R.example.com/Slipway", False, "write it as host/path/name"),
        ("", False, "write it as host/path/name"),
        ("--help", False, "write it as host/path/name"),
        ("team/slipway", True, "has no registry"),
    ],
)
def test_an_invalid_repository(repository: str, push: bool, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan("cpu", repository, push=push)


def test_names_of_repositories() -> None:
    for name in ("slipway", "localhost:5000/a/b", "europe-docker.pkg.dev/p/r/slipway_x", "r.example.com/a--b/c.d"):
        assert plan("cpu", name).name.startswith(f"{name}:")


@pytest.mark.parametrize(
    "base",
    [
        *(
            "",
            " ",
            "x y",
            "mine:1 ",
            "mine:1\n",
            "--help",
            "Mine:1",
            "r.example.com/Team/python:3.12",
            "-r.example.com/a",
        ),
        *("mine:", "mine:" + "t" * 129, "mine:a:b", "mine@3.12", "mine@sha256:12", "/mine", "mine/", "a//b", "a_-b"),
        *("https://r.example.com/python:3.12", "$BASE", "oci:/images/a b"),
    ],
)
def test_an_invalid_base(base: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan("cpu", "slipway", base=base)
    assert refused.value.message.startswith(f'"{base}" is not a valid base image: write --base as host/path/name:tag')


@pytest.mark.parametrize(
    "base",
    [
        *("python", "python:3.12-slim-bookworm", "mine:1.0_A-b", "mine:" + "t" * 128, f"mine@{DIGEST}"),
        *("R.Example.com/team/python", "localhost:5000/a__b/c--d.e:1", "[fd00::1]:5000/python:3", "127.0.0.1/p"),
        *(f"r.example.com/python:3.12@{DIGEST}", DIGEST, "0123456789ab", "oci-archive:/images/Python.tar"),
        *("docker://r.example.com/python:3.12", "scratch"),
    ],
)
def test_names_of_bases(base: str) -> None:
    assert plan("cpu", "slipway", base=base).context.base == base


# --- tools ------------------------------------------------------------------------------------------------------


def test_the_arguments_of_docker() -> None:
    steps = Tool("docker").steps("r/i:t", {"A": "1", "B": "x y"}, Path("/c"), push=True, more=["--secret=id=x"])
    assert steps == [
        [
            *("docker", "build", "--platform=linux/amd64", "--file=/c/docker/Dockerfile", "--tag=r/i:t"),
            *("--build-arg=A=1", "--build-arg=B=x y", "--secret=id=x", "/c"),
        ],
        ["docker", "push", "r/i:t"],
    ]


@pytest.mark.parametrize("name", ["podman", "buildah"])
def test_the_arguments_of_podman_and_buildah(name: str, tmp_path: Path) -> None:
    tool = Tool(name)
    build, push = tool.steps("r/i:t", {"A": "1"}, tmp_path, push=True)
    assert build[:2] == [name, "build"]
    assert {"--layers", "--force-rm"} <= set(build)
    assert push == [name, "push", f"--digestfile={tmp_path}/digest", "r/i:t"]
    (tmp_path / "digest").write_text(DIGEST)
    assert tool.digest("Copying blob sha256:" + "0" * 64, tmp_path) == DIGEST
    assert len(tool.steps("r/i:t", {}, tmp_path, push=False)) == 1


def test_the_output_of_dockers_push(tmp_path: Path) -> None:
    printed = f"The push refers to repository [r/i]\n5f70bf18a086: Pushed\nt: digest: {DIGEST} size: 1234\n"
    assert Tool("docker").digest(printed, tmp_path) == DIGEST
    with pytest.raises(LauncherError, match="printed no digest"):
        Tool("docker").digest("t: Pushed", tmp_path)


def test_the_config_of_cloud_build(tmp_path: Path) -> None:
    tool = Tool("gcloud")
    [[*command]] = tool.steps("r/i:t", {"A": "$x"}, tmp_path, push=True)
    assert command[:4] == ["gcloud", "builds", "submit", str(tmp_path)]
    tool.prepare("r/i:t", {"A": "$x"}, tmp_path, ["--no-cache"])
    config = yaml.safe_load((tmp_path / "cloudbuild.yaml").read_text())
    assert config["images"] == ["r/i:t"]
    [step] = config["steps"]
    # A single $ would start a substitution of Cloud Build.
    assert step["args"][-3:] == ["--build-arg=A=$$x", "--no-cache", "."]


# --- failures ---------------------------------------------------------------------------------------------------

# The output of the tools; that of buildah 1.28 and Docker 28 was recorded.
FAILURES = [
    (
        "buildah",
        "build",
        'Error: creating build container: short-name "nosuch:1" did not resolve to an alias and no unqualified-search '
        'registries are defined in "/etc/containers/registries.conf"',
        "The base image nosuch:1 cannot be pulled: creating build container: short-name",
    ),
    (
        "buildah",
        "build",
        "Error: creating build container: localhost/nosuch:1: image not known",
        "The base image nosuch:1 cannot be pulled: creating build container: localhost/nosuch:1: image not known.",
    ),
    (
        "docker",
        "build",
        "#2 ERROR: failed to resolve source metadata for r.example.com/nosuch:1: not found",
        "The base image nosuch:1 cannot be pulled: failed to resolve source metadata",
    ),
    ("docker", "build", "#7 1.2 The base image must have Python 3.12.", "The base image nosuch:1 has no Python 3.12."),
    (
        "docker",
        "build",
        "#9 3.1 error: Failed to fetch: `https://index.example.com/ray/`",
        "The image's packages cannot be installed: Failed to fetch: `https://index.example.com/ray/`.",
    ),
    (
        "buildah",
        "build",
        "write /opt/slipway/lib/x.so: no space left on device",
        "The disk is full: the cpu image takes about 5 GB where buildah keeps images.",
    ),
    (
        "docker",
        "push",
        "denied: Permission artifactregistry.repositories.uploadArtifacts denied on resource",
        "r.example.com refuses the push to r.example.com/x: denied: Permission",
    ),
    (
        "buildah",
        "push",
        "Error: trying to reuse blob sha256:0: checking whether a blob exists in r.example.com/x: unauthorized: log in",
        "r.example.com refuses the push to r.example.com/x: trying to reuse blob",
    ),
    (
        "docker",
        "push",
        'Get "https://r.example.com/v2/": dial tcp: lookup r.example.com: no such host',
        "r.example.com cannot be reached for the push: ",
    ),
    ("docker", "build", "#9 ERROR: something else", "docker build failed with exit code 7: #9 ERROR: something else"),
]


@pytest.mark.parametrize(("tool", "verb", "printed", "message"), FAILURES)
def test_a_failure_is_a_sentence(tool: str, verb: str, printed: str, message: str) -> None:
    lines = ["STEP 1: RUN python3 -c 'sys.exit(\"The base image must have Python 3.12.\")'", *printed.splitlines()]
    error = explain(lines, [tool, verb], 7, read("cpu", "nosuch:1"), "r.example.com/x", Tool(tool))
    assert error.message.startswith(message)


def test_how_to_log_in() -> None:
    def hint(tool: str, repository: str) -> str:
        return explain(["denied: no"], [tool, "push"], 1, read("cpu"), repository, Tool(tool)).hint

    assert "(podman login r.example.com)" in hint("podman", "r.example.com/x")
    assert "(gcloud auth configure-docker europe-docker.pkg.dev)" in hint("docker", "europe-docker.pkg.dev/p/r/x")


def test_no_tool_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LauncherError, match="docker: not installed; podman: not installed; buildah: not installed; gc"):
        tools.find()
    with pytest.raises(LauncherError, match="podman cannot build the image: not installed"):
        tools.find("podman")


# --- registry ---------------------------------------------------------------------------------------------------


@contextmanager
def registry(answer: Callable[[BaseHTTPRequestHandler], tuple[int, dict[str, str], bytes]]) -> Iterator[str]:
    """Yield the host and port of a fake registry that answers with `answer`.

    It replaces registries that require a login: those from the Go module proxy need a second server for the accounts.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            status, headers, body = answer(self)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_GET = do_HEAD  # noqa: N815 - http.server's name

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def read_digest(host: str) -> str | None:
    return digest_of(Repository.parse(f"{host}/team/slipway"), "t")


@pytest.fixture
def logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the file in which `docker login` stores logins; it does not exist yet."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "config.json"


def test_an_existing_and_a_missing_image(logins: Path) -> None:
    def answer(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        exists = request.path == "/v2/team/slipway/manifests/t"
        return (200, {"Docker-Content-Digest": DIGEST}, b"") if exists else (404, {}, b"")

    with registry(answer) as host:
        assert read_digest(host) == DIGEST
        assert digest_of(Repository.parse(f"{host}/team/other"), "t") is None


def test_a_registry_with_tokens(logins: Path) -> None:
    login = base64.b64encode(b"me:secret").decode()

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        authorization = request.headers.get("Authorization")
        if request.path.startswith("/token?service=s&scope=repository%3Ateam%2Fslipway%3Apull"):
            return (
                (200, {}, json.dumps({"token": "T"}).encode()) if authorization == f"Basic {login}" else (401, {}, b"")
            )
        if authorization == "Bearer T":
            return 200, {"Docker-Content-Digest": DIGEST}, b""
        realm = f"http://{request.headers['Host']}/token"
        challenge = f'Bearer realm="{realm}",service="s",scope="repository:team/slipway:pull"'
        return 401, {"WWW-Authenticate": challenge}, b""

    with registry(answer) as host:
        with pytest.raises(RegistryUnavailable, match="it returned no token: HTTP Error 401"):
            read_digest(host)
        logins.write_text(json.dumps({"auths": {host: {"auth": login}}}))
        assert read_digest(host) == DIGEST


def test_a_password_is_not_sent_unencrypted(logins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry names another machine, whose name resolves here to a server that records the request."""
    seen: list[str | None] = []
    resolve = socket.getaddrinfo

    def resolve_here(host: str, *more: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if host == "thief.example" else host, *more, **options)

    def steal(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        seen.append(request.headers["Authorization"])
        return 200, {}, b'{"token": "t"}'

    monkeypatch.setattr(socket, "getaddrinfo", resolve_here)
    monkeypatch.setenv("no_proxy", "127.0.0.1,thief.example")
    with registry(steal) as thief:
        realm = f"http://thief.example:{thief.partition(':')[2]}/token"
        with registry(lambda _: (401, {"WWW-Authenticate": f'Bearer realm="{realm}"'}, b"")) as host:
            with pytest.raises(RegistryUnavailable, match="it answers 401"):
                read_digest(host)  # without a login, a token for the public is requested there
            assert seen == [None]
            logins.write_text(json.dumps({"auths": {host: {"auth": "dTpw"}}}))
            with pytest.raises(
                RegistryUnavailable, match=r"asks for the password at http://thief\.example:.*encrypted"
            ):
                read_digest(host)
    assert seen == [None]


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("127.0.0.1:5000/a", "http://127.0.0.1:5000/v2/a"),
        ("localhost/a", "http://localhost/v2/a"),
        ("127.0.0.1.example.com/a", "https://127.0.0.1.example.com/v2/a"),
        ("localhost.example.com:5000/a", "https://localhost.example.com:5000/v2/a"),
    ],
)
def test_only_this_machine_is_asked_without_encryption(name: str, url: str) -> None:
    assert Repository.parse(name).url == url


def test_a_registry_with_a_credential_helper(logins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login = base64.b64encode(b"me:secret").decode()

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        if request.headers.get("Authorization") == f"Basic {login}":
            return 200, {"Docker-Content-Digest": DIGEST}, b""
        return 401, {"WWW-Authenticate": 'Basic realm="r"'}, b""

    helper = tmp_path / "docker-credential-mine"
    credentials = json.dumps({"Username": "me", "Secret": "secret"})
    helper.write_text(f"#!/bin/sh\n[ \"$1\" = get ] && echo '{credentials}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with registry(answer) as host:
        with pytest.raises(RegistryUnavailable, match="it answers 401"):
            read_digest(host)
        logins.write_text(json.dumps({"credHelpers": {host: "mine"}}))
        assert read_digest(host) == DIGEST


def test_a_registry_without_a_usable_answer(logins: Path) -> None:
    with registry(lambda _: (403, {}, b"")) as host, pytest.raises(RegistryUnavailable, match="it answers 403"):
        read_digest(host)
    with (
        registry(lambda _: (200, {}, b"")) as host,
        pytest.raises(RegistryUnavailable, match="its answer has no digest"),
    ):
        read_digest(host)
    with pytest.raises(RegistryUnavailable, match="Connection refused"):
        read_digest(host)  # the registry is closed
    logins.write_text("{")
    with (
        registry(lambda _: (401, {}, b"")) as host,
        pytest.raises(RegistryUnavailable, match=r"config\.json cannot be read"),
    ):
        read_digest(host)


# --- overlay ----------------------------------------------------------------------------------------------------

WRITTEN = """\
# Ours.
team: {name: research}   # who
list:
    - 010
    - yes

image:
  # From the build.
  repository: old  # where
  pullPolicy: 'Always'
train:
  learning_rate: 3e-4
"""


def test_an_overlay_keeps_all_else(tmp_path: Path) -> None:
    path = tmp_path / "overlay.yaml"
    path.write_text(WRITTEN)
    path.chmod(0o640)
    Overlay(path).write(IMAGE)
    text = path.read_text()
    other_lines = [line for line in WRITTEN.splitlines() if "repository" not in line]
    assert [line for line in text.splitlines() if line in other_lines] == other_lines
    assert re.search(r'repository: "r\.example\.com/slipway" +# where$', text, re.MULTILINE)
    assert yaml.safe_load(text)["image"] == {**IMAGE, "pullPolicy": "Always"}
    assert path.stat().st_mode & 0o777 == 0o640
    Overlay(path).write(IMAGE)
    assert path.read_text() == text
    assert [entry.name for entry in tmp_path.iterdir()] == ["overlay.yaml"]


@pytest.mark.parametrize("before", ["", "# nothing yet\n", "team: {name: a}", "a:\n- 1\n# end\n", "image:\n"])
def test_an_overlay_without_an_image(tmp_path: Path, before: str) -> None:
    path = tmp_path / "overlay.yaml"
    if before:
        path.write_text(before)
    Overlay(path).check()
    assert path.exists() == bool(before)
    Overlay(path).write(IMAGE)
    text = path.read_text()
    assert text.startswith(before.removesuffix("image:\n"))
    assert yaml.safe_load(text) == {**(yaml.safe_load(before) or {}), "image": IMAGE}


def test_an_overlay_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text(WRITTEN)
    link = tmp_path / "link.yaml"
    link.symlink_to("real.yaml")
    Overlay(link).write(IMAGE)
    assert link.is_symlink()
    assert DIGEST in (tmp_path / "real.yaml").read_text()


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (b"image: [", "overlay.yaml"),
        (b"a: 1\na: 2\n", "overlay.yaml:2"),
        (b"- 1\n", "the file contains a list"),
        (b"image: old:1\n", "has an image that is not a map"),
        (b"\xff\xfe", "UTF-8"),
        (b"{team: {name: a}}\n", "cannot be preserved"),
    ],
)
def test_an_overlay_that_cannot_be_changed_stays_as_it_is(tmp_path: Path, before: bytes, message: str) -> None:
    path = tmp_path / "overlay.yaml"
    path.write_bytes(before)
    for attempt in (Overlay(path).check, lambda: Overlay(path).write(IMAGE)):
        with pytest.raises(LauncherError, match=message):
            attempt()
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_an_overlay_that_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(LauncherError, match="is a folder"):
        Overlay(tmp_path).check()
    with pytest.raises(LauncherError, match="there is no folder"):
        Overlay(tmp_path / "none" / "x.yaml").check()
