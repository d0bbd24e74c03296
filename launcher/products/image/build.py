"""Plan, build and push an image, and write its name to a values file."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import LauncherError, UsageError
from launcher.products.image import tools
from launcher.products.image.context import Context, read
from launcher.products.image.errors import explain
from launcher.products.image.overlay import Overlay
from launcher.products.image.registry import RegistryUnavailable, Repository, digest_of
from launcher.products.image.tools import Tool

_Say = Callable[..., None]

# The common grammar of the tools: path parts of lower-case letters and digits, after an optional host with a port.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?{_PART}(?:/{_PART})*")
# A reference to an image, by the grammar at the top of the package github.com/distribution/reference. Docker, Podman
# and Buildah all use that package. Its host is a domain name or an IP address.
_HOST_PART = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:{_HOST_PART}(?:\.{_HOST_PART})*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?"
_ALGORITHM = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*"
_REFERENCE = re.compile(
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@{_ALGORITHM}:[0-9A-Fa-f]{{32,}})?"
)
# Podman and Buildah also accept images from other sources: containers-transports(5).
_TRANSPORT = re.compile(r"(?:docker|docker-archive|docker-daemon|containers-storage|dir|oci|oci-archive):\S+")


@dataclass(frozen=True)
class ImagePlan:
    """An image to build: its content, its name, and whether to push and record it."""

    context: Context
    repository: str
    push: bool
    overlay: Overlay | None = None
    tool: str | None = None
    more: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.repository}:{self.context.tag}"

    def commands(self, tool: Tool) -> list[list[str]]:
        """Return the commands of a build. CONTEXT is a placeholder for its temporary folder."""
        return tool.steps(self.name, self.context.arguments, Path("CONTEXT"), push=self.push, more=self.more)


@dataclass(frozen=True)
class BuiltImage:
    """An image after a build.

    `digest` is "" if the image was not pushed. `built` is false if the registry already had it.
    """

    repository: str
    tag: str
    digest: str
    accelerator: str
    ray_version: str
    built: bool

    def as_json(self) -> dict[str, object]:
        return {**self.values, "accelerator": self.accelerator, "built": self.built}

    @property
    def values(self) -> dict[str, str]:
        """The value of `image` in a values file."""
        plain = {"repository": self.repository, "tag": self.tag, "digest": self.digest}
        return {**plain, "rayVersion": self.ray_version}


def plan(
    accelerator: str,
    repository: str,
    *,
    base: str | None = None,
    push: bool = False,
    write: Path | None = None,
    tool: str | None = None,
    more: Sequence[str] = (),
) -> ImagePlan:
    """Return the plan of the image for "cpu", "tpu" or "gpu". Builds nothing.

    Raises LauncherError if the arguments are invalid or the build cannot succeed.
    """
    if not _REPOSITORY.fullmatch(repository):
        tagged = _REPOSITORY.fullmatch(repository.partition("@")[0].rpartition(":")[0])
        why = "it has a tag, but the tag is computed from the content" if tagged else "write it as host/path/name"
        raise UsageError(f'"{repository}" is not a valid repository name: {why}.')
    if push and not Repository.parse(repository).host:
        raise UsageError(f'"{repository}" has no registry to push to; write it as host/path/name.')
    if base is not None and not _REFERENCE.fullmatch(base) and not _TRANSPORT.fullmatch(base):
        raise UsageError(
            f'"{base}" is not a valid base image: write --base as host/path/name:tag or name@sha256:…, with the path '
            "and the name in lowercase letters."
        )
    if tool == "gcloud" and not push:
        raise UsageError("gcloud keeps images only in a registry; add --push.")
    overlay = Overlay(write) if write is not None else None
    if overlay:
        overlay.check()
    return ImagePlan(read(accelerator, base), repository, push, overlay, tool, tuple(more))


def build(plan: ImagePlan, say: _Say) -> BuiltImage:
    """Build the image, push it if the plan requires it, and write it to the overlay.

    An image that is already pushed is not built again. No file or container of the build remains, even on failure.
    Raises LauncherError if the build or the push fails.
    """
    digest = _pushed(plan, say) if plan.push else None
    built = digest is None
    if digest is None:
        digest = _build(plan, tools.find(plan.tool), say)
    context = plan.context
    image = BuiltImage(plan.repository, context.tag, digest, context.accelerator, context.ray_version, built)
    if plan.overlay:
        plan.overlay.write(image.values)
        say(f"Wrote image to {plan.overlay.path}.")
    return image


def dry_run(plan: ImagePlan) -> list[str]:
    """Return the commands of a build, quoted for a shell. Raises LauncherError if no tool works."""
    return [shlex.join(command) for command in plan.commands(tools.find(plan.tool))]


def _pushed(plan: ImagePlan, say: _Say) -> str | None:
    repository = Repository.parse(plan.repository)
    try:
        digest = digest_of(repository, plan.context.tag)
    except RegistryUnavailable as error:
        say(f"Cannot check whether {repository.host} already has {plan.name} ({error}).")
        return None
    if digest:
        say(f"{plan.name} is already pushed; there is nothing to build.")
    return digest


def _build(plan: ImagePlan, tool: Tool, say: _Say) -> str:
    """Build the image; return the digest of the pushed image, or "" without a push."""
    if tool.pushes_always and not plan.push:
        raise LauncherError(
            f"Only {tool.name} works on this machine, and it keeps images only in a registry.", "Add --push."
        )
    say(f"Building {plan.name} with {tool.name} …")
    # Podman and Buildah first write a new layer of two gigabytes to a temporary folder. They use /var/tmp, because /tmp
    # may be in memory, and leave the layer there if they are interrupted. So the build creates its own folder in it,
    # with an unpredictable name.
    large = "/var/tmp"  # noqa: S108 - nothing is written to it but that folder
    roomy = os.environ.get("TMPDIR") or (large if os.access(large, os.W_OK) else None)
    with contextlib.ExitStack() as stack:
        try:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-image-", dir=roomy))
            folder, scratch = Path(temporary) / "context", Path(temporary) / "scratch"
            scratch.mkdir()
            arguments = plan.context.arguments
            plan.context.write(folder)
            tool.prepare(plan.name, arguments, folder, plan.more)
        except OSError as error:
            raise LauncherError(
                f"The build cannot write its files to {roomy or tempfile.gettempdir()}: {error.strerror}.",
                "Set TMPDIR to another folder.",
            ) from error
        environment = {**os.environ, "TMPDIR": str(scratch)}
        printed = ""
        for step in tool.steps(plan.name, arguments, folder, push=plan.push, more=plan.more):
            printed = _run(step, environment, plan, tool, say)
        return tool.digest(printed, folder) if plan.push else ""


def _run(command: Sequence[str], environment: Mapping[str, str], plan: ImagePlan, tool: Tool, say: _Say) -> str:
    """Run the command; return its last output. All of its output goes to `say`.

    Raises LauncherError with the cause if the command fails.
    """
    last: deque[str] = deque(maxlen=400)
    before = tool.containers()
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                last.append(line.rstrip())
                say(line.rstrip())
        except BaseException:
            # Ctrl-C usually reaches the tool as well. Give it time to exit.
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
            tool.remove(tool.containers() - before)
            raise
    if process.returncode != 0:
        raise explain(list(last), command, process.returncode, plan.context, plan.repository, tool)
    return "\n".join(last)
