"""Runs gcloud, or its stand-in, in front of a stub, and records the requests of a command."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.products.gke.gcloud.stub import Request, Stub
from tests.products.gke.gcloud.world import World

STANDIN = Path(__file__).with_name("standin.py")
NO_GCLOUD = "The test runs gcloud, which its stand-in replaces in other tests. Install the Google Cloud CLI."
APIS = (
    *("CONTAINER", "SERVICEUSAGE", "COMPUTE", "STORAGE"),
    *("ARTIFACTREGISTRY", "IAM", "CLOUDRESOURCEMANAGER"),
)


def has_gcloud() -> bool:
    """Whether the real gcloud is installed."""
    return shutil.which("gcloud") is not None


def environment(stub: Stub, folder: Path, program: str | Path = STANDIN) -> dict[str, str]:
    """The variables for a launcher, or a gcloud, that talks to `stub` without a login.

    folder: an empty folder for its home, its configuration and its kubeconfig. program: the gcloud that the launcher
    starts: the stand-in, or "gcloud" for the real one.
    """
    # The stand-in starts the first python3 on the PATH. If pyenv installed that one, it takes a second to start.
    first = [str(Path(sys.executable).parent)] if program == STANDIN else []
    return {
        **os.environ,
        "PATH": os.pathsep.join([*first, os.environ["PATH"]]),
        **{"SLIPWAY_GCLOUD": str(program), "HOME": str(folder), "KUBECONFIG": str(folder / "kubeconfig")},
        "CLOUDSDK_CONFIG": str(folder / "gcloud"),
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_CORE_DISABLE_FILE_LOGGING": "true",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        "CLOUDSDK_SURVEY_DISABLE_PROMPTS": "true",
        **{f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{api}": stub.url for api in APIS},
    }


def run(argv: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the gcloud of `variables` with `argv`. It ends after 120 s at the latest (subprocess.TimeoutExpired)."""
    command = [variables["SLIPWAY_GCLOUD"], *argv]
    return subprocess.run(
        command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )


Runner = Callable[[list[str], dict[str, str]], subprocess.CompletedProcess[str]]


@contextlib.contextmanager
def loaded() -> Iterator[Runner]:
    """Yield a function like `run` for many commands of the real gcloud, which is started once (loaded.py)."""
    with tempfile.TemporaryDirectory() as folder:
        info = ["gcloud", "info", "--format=json", "--quiet"]
        variables = {**os.environ, "CLOUDSDK_CONFIG": folder}
        found = json.loads(subprocess.run(info, env=variables, capture_output=True, check=True, timeout=120).stdout)
    python, root = found["basic"]["python_location"], Path(found["installation"]["sdk_root"])
    command = [python, "-S", Path(__file__).with_name("loaded.py"), root / "lib"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        into, out = process.stdin, process.stdout

        def run_in_fork(argv: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
            into.write(json.dumps({"arguments": argv, "environment": variables}) + "\n")
            into.flush()
            answer = json.loads(out.readline())
            return subprocess.CompletedProcess(["gcloud", *argv], answer["code"], "", answer["err"])

        yield run_in_fork
        into.close()


def record(
    argv: list[str],
    program: str | Path = "gcloud",
    prepare: Callable[[Stub], object] = lambda _: None,
    project: str = "demo",
    run: Runner = run,
) -> tuple[list[Request], str]:
    """The changing requests of one command alone, and its last line of errors if it was refused, or else "".

    prepare: makes what the command looks up before it sends a change.
    """
    with tempfile.TemporaryDirectory() as folder, Stub(World(project=project, permissive=True)) as stub:
        prepare(stub)
        ended = run(argv, environment(stub, Path(folder), program))
        refusal = "" if ended.returncode == 0 else next(line for line in ended.stderr.splitlines() if "ERROR" in line)
        return stub.changes(), refusal
