"""The programs that can build and push an image: their commands, and checks whether they work on this machine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import LauncherError

NAMES = ("docker", "podman", "buildah", "gcloud")
# TPU and GPU hosts are amd64, regardless of this machine.
PLATFORM = "linux/amd64"

_SECONDS = 30.0
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Tool:
    """One of the programs. `steps` returns its commands for an image, `digest` parses the output of the last one."""

    name: str

    @property
    def pushes_always(self) -> bool:
        """Whether the tool always pushes. Cloud Build keeps images only in a registry."""
        return self.name == "gcloud"

    def steps(
        self, image: str, arguments: Mapping[str, str], folder: Path, *, push: bool, more: Sequence[str] = ()
    ) -> list[list[str]]:
        """Return the commands to run, in order. The build's context is in `folder`."""
        if self.name == "gcloud":
            config = f"--config={folder / 'cloudbuild.yaml'}"
            return [["gcloud", "builds", "submit", str(folder), config, "--format=value(results.images[0].digest)"]]
        build = [self.name, "build", f"--platform={PLATFORM}", f"--file={folder / 'docker' / 'Dockerfile'}"]
        if self.name != "docker":  # docker does both by default
            build += ["--layers", "--force-rm"]
        build += [f"--tag={image}", *(f"--build-arg={key}={value}" for key, value in arguments.items())]
        steps = [[*build, *more, str(folder)]]
        if push:
            note = [] if self.name == "docker" else [f"--digestfile={folder / 'digest'}"]
            steps.append([self.name, "push", *note, image])
        return steps

    def prepare(self, image: str, arguments: Mapping[str, str], folder: Path, more: Sequence[str] = ()) -> None:
        """Write the additional files that the commands read to the context's folder."""
        if self.name != "gcloud":
            return
        # Every step can use the worker's Docker, so the image of the Docker client is sufficient.
        args = ["build", f"--platform={PLATFORM}", "--file=docker/Dockerfile", f"--tag={image}"]
        args += [*(f"--build-arg={key}={value}" for key, value in arguments.items()), *more, "."]
        step = {"name": "docker:28-cli", "entrypoint": "docker", "args": args, "env": ["DOCKER_BUILDKIT=1"]}
        config = {"steps": [step], "images": [image], "timeout": "3600s"}
        # JSON is valid YAML. Cloud Build would substitute a single $.
        (folder / "cloudbuild.yaml").write_text(json.dumps(config, indent=2).replace("$", "$$"), encoding="utf-8")

    def digest(self, printed: str, folder: Path) -> str:
        """Return the digest of the pushed image, from the output or file of the last step.

        Raises LauncherError if there is no digest.
        """
        file = folder / "digest"
        digests = _DIGEST.findall(file.read_text(encoding="utf-8") if file.exists() else printed)
        if not digests:
            raise LauncherError(
                f"{self.name} pushed the image but printed no digest.", "Run the same command again to find it."
            )
        return str(digests[-1])

    def containers(self) -> set[str]:
        """Return the containers of running builds. Docker keeps its own in the engine and removes them itself."""
        listing = {
            "buildah": ["containers", "--format={{.ContainerID}} {{.ContainerName}}"],
            "podman": ["ps", "--all", "--external", "--format={{.ID}} {{.Names}}"],
        }
        if self.name not in listing:
            return set()
        lines = self._ask(*listing[self.name]).out.splitlines()
        return {line.split()[0] for line in lines if "-working-container" in line}

    def remove(self, containers: set[str]) -> None:
        """Remove the containers of an interrupted build. Neither program removes them itself."""
        if containers:
            self._ask("rm", *sorted(containers))

    def trouble(self) -> str:
        """Return why the program does not work on this machine, or "" if it does. A client needs its engine."""
        if shutil.which(self.name) is None:
            return "not installed"
        if self.name == "gcloud":
            account = self._ask("auth", "list", "--filter=status:ACTIVE", "--format=value(account)")
            project = self._ask("config", "get-value", "project") if account.out else account
            if not account.out:
                return "no account is logged in (gcloud auth login)"
            return "" if project.out else "no project is set (gcloud config set project PROJECT)"
        result = self._ask("info")
        if result.code == 0:
            return ""
        lines = result.err.strip().splitlines() or ["it does not work here"]
        return re.sub(r"^(ERROR|Error): |[.] Is the docker daemon running\?$|[.]$", "", lines[-1].strip())

    def _ask(self, *arguments: str) -> _Said:
        try:
            done = subprocess.run(
                [self.name, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return _Said(1, "", str(error))
        return _Said(done.returncode, done.stdout.strip(), done.stderr)


@dataclass(frozen=True)
class _Said:
    code: int
    out: str
    err: str


def find(name: str | None = None) -> Tool:
    """Return the tool `name`, or the first one that works on this machine.

    Raises LauncherError with the reasons if none works.
    """
    troubles = {}
    for candidate in [name] if name else NAMES:
        tool = Tool(candidate)
        trouble = tool.trouble()
        if not trouble:
            return tool
        troubles[candidate] = trouble
    if name:
        raise LauncherError(f"{name} cannot build the image: {troubles[name]}.", "Leave out --tool to try the others.")
    reported = "; ".join(f"{candidate}: {trouble}" for candidate, trouble in troubles.items())
    raise LauncherError(
        f"No tool that can build images works on this machine ({reported}).",
        "Install Docker, Podman or Buildah and start it, or log in with gcloud, which builds in Google Cloud.",
    )
