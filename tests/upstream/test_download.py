"""`make upstream` against an HTTP server on loopback: what it keeps and repeats, and its sentence for each error."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.upstream import download

CHECKOUT = Path(__file__).parents[2]
CONTENT = {f"{project}/v1.2.{patch}/{name}.yaml": f"{project} {patch} {name}\n".encode() * 1000
           for project in ("kueue", "jobset") for patch in (3, 4) for name in ("a", "b")}  # fmt: skip
A = "kueue/v1.2.3/a.yaml"


class Upstream(ThreadingHTTPServer):
    """The host of the files. `faults` has what happens to the next requests of a path; `asked` the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = dict(CONTENT)
        self.faults: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.halfway = threading.Event()  # a transfer with the fault "stops" has sent its first half
        self.end = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Upstream

    def do_GET(self) -> None:
        path = self.path.lstrip("/")
        self.server.asked.append(path)
        fault = self.server.faults[path].pop(0) if self.server.faults.get(path) else ""
        content = self.server.files.get(path)
        if content is None or fault.isdigit():
            self.send_error(int(fault or 404))
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if fault else content)
        if fault == "stops":
            self.server.halfway.set()
            self.server.end.wait()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Upstream]:
    """An upstream with eight files, their releases.toml, and an empty cache."""
    lines = ['host = "https://upstream.invalid"']
    for project in ("kueue", "jobset"):
        lines += [f"[{project}]", f'path = "{project}/v{{version}}/{{file}}"']
        for patch in (3, 4):
            lines.append(f'[{project}.versions."1.2.{patch}"]')
            for name in ("a.yaml", "b.yaml"):
                content = CONTENT[f"{project}/v1.2.{patch}/{name}"]
                lines.append(f'"{name}" = "{hashlib.sha256(content).hexdigest()}"')
    (tmp_path / "releases.toml").write_text("\n".join(lines))
    monkeypatch.setattr(download, "RELEASES", tmp_path / "releases.toml")
    monkeypatch.setattr(download, "WAITS", (0.01, 0.01))
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "a cache"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Upstream() as server:
        monkeypatch.setenv("SLIPWAY_UPSTREAM", server.url)
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield server
        server.end.set()
        server.shutdown()


def process(tmp_path: Path, before: str = "") -> subprocess.Popen[str]:
    """Start `make upstream` for the releases of the tests."""
    program = f"{before}\nimport sys\nfrom pathlib import Path\nfrom tests.upstream import download\n"
    program += f"download.RELEASES = Path({str(tmp_path / 'releases.toml')!r})\nsys.exit(download.main())"
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def downloaded() -> dict[str, bytes]:
    """Return the content of each file in the cache, by its path at the server; part files have other names."""
    found = [path for path in download.folder().rglob("*") if path.is_file() and path.name != ".lock"]
    return {path.relative_to(download.folder()).as_posix().replace("-v", "/v"): path.read_bytes() for path in found}


def test_each_file_is_downloaded_once(upstream: Upstream, capsys: pytest.CaptureFixture[str]) -> None:
    assert download.main() == 0
    assert downloaded() == CONTENT
    assert sorted(upstream.asked) == sorted(CONTENT)
    host = f"127.0.0.1:{upstream.server_port}"
    assert capsys.readouterr() == (
        f"{download.folder()}\n",
        f"Downloading 8 files from {host} into {download.folder()} …\n",
    )

    upstream.shutdown()
    upstream.server_close()
    assert download.main() == 0
    assert capsys.readouterr() == (f"{download.folder()}\n", "")


def test_a_file_that_changed_in_the_cache_is_downloaded_again(upstream: Upstream) -> None:
    assert download.main() == 0
    (download.folder() / "kueue-v1.2.3" / "a.yaml").write_bytes(b"changed")
    (download.folder() / "jobset-v1.2.4" / "b.yaml").unlink()
    upstream.asked.clear()
    assert download.main() == 0
    assert downloaded() == CONTENT
    assert sorted(upstream.asked) == ["jobset/v1.2.4/b.yaml", A]


def test_a_wrong_hash_keeps_nothing(upstream: Upstream) -> None:
    upstream.files[A] += b"more"
    message = str(download.main())
    wrong, right = (hashlib.sha256(each[A]).hexdigest() for each in (upstream.files, CONTENT))
    assert message == (
        f"{upstream.url}/{A} has the SHA-256 {wrong}, but releases.toml expects {right}. Check whether a proxy or a "
        "mirror answers in place of GitHub; the file was not kept."
    )
    assert downloaded().items() <= CONTENT.items() - {(A, CONTENT[A])}


@pytest.mark.parametrize("fault", ["broken", "503"])
def test_a_transfer_is_repeated(upstream: Upstream, fault: str) -> None:
    upstream.faults[A] = [fault, fault]
    assert download.main() == 0
    assert downloaded() == CONTENT
    assert upstream.asked.count(A) == 3


def test_a_transfer_that_always_breaks(upstream: Upstream) -> None:
    upstream.faults[A] = ["broken"] * 3
    message = str(download.main())
    assert message.startswith(f"{upstream.url}/{A}: the transfer broke: ")
    assert message.endswith(". Run make upstream again; it continues with the files that are missing.")
    assert "IncompleteRead(" in message
    assert A not in downloaded()
    assert downloaded().items() <= CONTENT.items()
    assert download.main() == 0
    assert downloaded() == CONTENT


def test_a_missing_file(upstream: Upstream) -> None:
    del upstream.files[A]
    assert download.main() == (
        f"{upstream.url}/{A}: the server answers HTTP 404 Not Found. Check the path and the version in releases.toml, "
        "or set SLIPWAY_UPSTREAM to a mirror of https://upstream.invalid."
    )
    assert upstream.asked.count(A) == 1


@pytest.mark.parametrize("through", ["SLIPWAY_UPSTREAM", "http_proxy"])
def test_no_network(upstream: Upstream, monkeypatch: pytest.MonkeyPatch, through: str) -> None:
    upstream.shutdown()
    upstream.server_close()
    host = upstream.url if through == "SLIPWAY_UPSTREAM" else "http://mirror.invalid"
    monkeypatch.setenv(through, upstream.url)
    monkeypatch.setenv("SLIPWAY_UPSTREAM", host.replace("://", "://user:password@"))
    how, check = {
        "SLIPWAY_UPSTREAM": ("reached", "the network"),
        "http_proxy": ("reached through the proxy", "HTTPS_PROXY and NO_PROXY"),
    }[through]
    assert download.main() == (
        f"{host}/{A} cannot be {how}: Connection refused. Check {check}, or set SLIPWAY_UPSTREAM to a mirror of "
        "https://upstream.invalid."
    )
    assert downloaded() == {}


@pytest.mark.parametrize("mirror", ["mirror.example", "ftp://mirror.example", "http://"])
def test_a_mirror_that_is_not_a_url(upstream: Upstream, monkeypatch: pytest.MonkeyPatch, mirror: str) -> None:
    monkeypatch.setenv("SLIPWAY_UPSTREAM", mirror)
    assert download.main() == "SLIPWAY_UPSTREAM is not a URL. Set it to one like https://mirror.example/github."
    assert not upstream.asked


def test_two_calls_at_the_same_time_download_each_file_once(upstream: Upstream, tmp_path: Path) -> None:
    both = [process(tmp_path) for _ in range(2)]
    outputs = [each.communicate(timeout=60) for each in both]
    assert [each.returncode for each in both] == [0, 0], outputs
    assert sorted(upstream.asked) == sorted(CONTENT)
    assert downloaded() == CONTENT


def test_a_killed_download_leaves_no_wrong_file(upstream: Upstream, tmp_path: Path) -> None:
    upstream.faults[A] = ["stops"]
    killed = process(tmp_path)
    assert upstream.halfway.wait(60)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    # Another transfer may have been writing its part file, which no reader opens. The next download replaces it.
    left = {path: content for path, content in downloaded().items() if not path.endswith(".part")}
    assert A not in left
    assert left.items() <= CONTENT.items()
    file = download.folder() / A.replace("/v", "-v")
    file.parent.mkdir(exist_ok=True)
    file.with_name(f"{file.name}.part").write_bytes(CONTENT[A][:100])
    assert download.main() == 0
    assert downloaded() == CONTENT


def test_a_cache_that_cannot_be_written(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "file"))
    assert download.main() == (
        f"{tmp_path}/file/upstream cannot be written: Not a directory. Make the folder writable, free disk space, or "
        "set SLIPWAY_CACHE to another folder."
    )


def test_a_full_disk(upstream: Upstream, tmp_path: Path) -> None:
    """A limit on the size of files takes the place of a full disk: the write fails after a part of the content."""
    limit = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}))"
    full = process(tmp_path, limit)
    error = full.communicate(timeout=60)[1]
    assert full.returncode == 1
    assert "Traceback" not in error
    assert f".yaml.part cannot be written: {os.strerror(27)}. Make the folder writable, free disk space" in error
    assert downloaded() == {}


def test_the_urls_of_the_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_UPSTREAM", raising=False)
    wanted = download._downloads()
    assert {each.url for each in wanted} >= {
        "https://raw.githubusercontent.com/kubernetes-sigs/kueue/v0.19.2/config/components/crd/bases/kueue.x-k8s.io_workloads.yaml",
        "https://raw.githubusercontent.com/kubernetes-sigs/jobset/v0.12.0/config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
        "https://raw.githubusercontent.com/ray-project/kuberay/v1.7.0/ray-operator/config/crd/bases/ray.io_rayjobs.yaml",
    }
    assert {each.file.relative_to(download.folder()).as_posix() for each in wanted} == {
        f"{project}-v{version}/{name}"
        for project, those in download.versions().items()
        for version in those
        for name in download.files(project, version)
    }
    assert all(len(bytes.fromhex(each.sha256)) == 32 for each in wanted)
