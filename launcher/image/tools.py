"""The programs that can build and push an image: what each is called with, and how to tell whether it works here."""

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
# TPU and GPU hosts are amd64, whatever the laptop is.
PLATFORM = "linux/amd64"

_SECONDS = 30.0
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Tool:
    """One of the programs. `steps` are its commands for one image, `digest` reads what the last of them printed."""

    name: str

    @property
    def pushes_always(self) -> bool:
        """Cloud Build keeps no image but in a registry."""
        return self.name == "gcloud"

    def steps(
        self, image: str, arguments: Mapping[str, str], folder: Path, *, push: bool, more: Sequence[str] = ()
    ) -> list[list[str]]:
        """What to run, in this order, with the build's context in `folder`."""
        if self.name == "gcloud":
            config = f"--config={folder / 'cloudbuild.yaml'}"
            return [["gcloud", "builds", "submit", str(folder), config, "--format=value(results.images[0].digest)"]]
        build = [self.name, "build", f"--platform={PLATFORM}", f"--file={folder / 'docker' / 'Dockerfile'}"]
        if self.name != "docker":  # which does both by itself
            build += ["--layers", "--force-rm"]
        build += [f"--tag={image}", *(f"--build-arg={key}={value}" for key, value in arguments.items())]
        steps = [[*build, *more, str(folder)]]
        if push:
            note = [] if self.name == "docker" else [f"--digestfile={folder / 'digest'}"]
            steps.append([self.name, "push", *note, image])
        return steps

    def prepare(self, image: str, arguments: Mapping[str, str], folder: Path, more: Sequence[str] = ()) -> None:
        """Write beside the context what the commands read."""
        if self.name != "gcloud":
            return
        # Every step reaches the worker's own Docker, so the image of Docker's client will do.
        args = ["build", f"--platform={PLATFORM}", "--file=docker/Dockerfile", f"--tag={image}"]
        args += [*(f"--build-arg={key}={value}" for key, value in arguments.items()), *more, "."]
        step = {"name": "docker:28-cli", "entrypoint": "docker", "args": args, "env": ["DOCKER_BUILDKIT=1"]}
        config = {"steps": [step], "images": [image], "timeout": "3600s"}
        # JSON is YAML, and a $ would be a substitution of Cloud Build's.
        (folder / "cloudbuild.yaml").write_text(json.dumps(config, indent=2).replace("$", "$$"), encoding="utf-8")

    def digest(self, printed: str, folder: Path) -> str:
        """The digest of what was pushed, of what the last step printed or wrote. Raises LauncherError without one."""
        file = folder / "digest"
        found = _DIGEST.findall(file.read_text(encoding="utf-8") if file.exists() else printed)
        if not found:
            raise LauncherError(f"{self.name} pushed the image and named no digest.", "The same command finds it.")
        return str(found[-1])

    def containers(self) -> set[str]:
        """The containers that builds are working in; Docker keeps its own in its engine, and removes them there."""
        listing = {
            "buildah": ["containers", "--format={{.ContainerID}} {{.ContainerName}}"],
            "podman": ["ps", "--all", "--external", "--format={{.ID}} {{.Names}}"],
        }
        if self.name not in listing:
            return set()
        lines = self._ask(*listing[self.name]).out.splitlines()
        return {line.split()[0] for line in lines if "-working-container" in line}

    def remove(self, containers: set[str]) -> None:
        """Remove what an interrupted build has left: neither program does it by itself."""
        if containers:
            self._ask("rm", *sorted(containers))

    def trouble(self) -> str:
        """Why the program does not work here; "" if it does. A client without an engine is of no use."""
        if shutil.which(self.name) is None:
            return "not installed"
        if self.name == "gcloud":
            account = self._ask("auth", "list", "--filter=status:ACTIVE", "--format=value(account)")
            project = self._ask("config", "get-value", "project") if account.out else account
            if not account.out:
                return "no account is logged in (gcloud auth login)"
            return "" if project.out else "no project is set (gcloud config set project PROJECT)"
        said = self._ask("info")
        if said.code == 0:
            return ""
        lines = said.err.strip().splitlines() or ["it does not work here"]
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
    """The tool called `name`, else the first that works here. Raises LauncherError that says why none does."""
    troubles = {}
    for candidate in [name] if name else NAMES:
        tool = Tool(candidate)
        trouble = tool.trouble()
        if not trouble:
            return tool
        troubles[candidate] = trouble
    if name:
        raise LauncherError(f"{name} cannot build the image: {troubles[name]}.", "Leave out --tool to try the others.")
    told = "; ".join(f"{candidate}: {trouble}" for candidate, trouble in troubles.items())
    raise LauncherError(
        f"No tool that builds images works here ({told}).",
        "Install Docker, Podman or Buildah and start it, or log in with gcloud, which builds in Google Cloud.",
    )
