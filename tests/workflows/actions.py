"""The actions that the workflows use, and what each leaves behind on the machine. An unknown action is an error."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.tools.go_tools import find_go
from tests.workflows.expressions import WorkflowError
from tests.workflows.machine import Machine, folder_of_python


@dataclass(frozen=True)
class Event:
    """The event that starts a workflow: a push of a branch, or of a tag.

    source: the repository that `commit` is in. ref: "refs/heads/main", or "refs/tags/v1.2.3".
    """

    source: Path
    commit: str
    ref: str

    @property
    def ref_name(self) -> str:
        return self.ref.split("/", 2)[2]


@dataclass
class World:
    """The state that the actions of all jobs of a workflow share.

    caches: the real folder of a path of actions/cache. copies: the first checkout; the other jobs get hard links to its
    files. None: each job checks out its own. patience: the factor for the time limits of jobs.
    """

    event: Event
    artifacts: Path
    caches: Mapping[str, Path]
    copies: Path | None = None
    patience: float = 1.0


@dataclass
class Effects:
    """Changes of an action that later steps see."""

    path: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)


Inputs = Mapping[str, str]


def _checkout(inputs: Inputs, machine: Machine, world: World) -> Effects:
    """The commit in the workspace, with its whole history and all branches and tags if fetch-depth is 0."""
    folder, event = machine.workspace, world.event
    if world.copies is None:
        _clone(folder, event)
    else:
        if not world.copies.exists():
            world.copies.mkdir()
            _clone(world.copies, event)
        shutil.copytree(world.copies, folder, copy_function=os.link, symlinks=True, dirs_exist_ok=True)
    if inputs.get("fetch-depth") != "0":
        for ref in _git(folder, "for-each-ref", "--format=%(refname)").splitlines():
            if ref not in (_here(event), "refs/heads/main"):
                _git(folder, "update-ref", "-d", ref)
        # Git takes the end of history from this file.
        (folder / ".git/shallow").write_text(f"{event.commit}\n")
    return Effects()


def _here(event: Event) -> str:
    """Return the name of the event's branch or tag in the clone."""
    return event.ref.replace("refs/heads/", "refs/remotes/origin/")


def _clone(folder: Path, event: Event) -> None:
    listed = _git(event.source, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags")
    refs = dict(line.split() for line in listed.replace("refs/heads/", "refs/remotes/origin/").splitlines())
    _git(folder, "init", "--quiet", "--initial-branch=main")
    _git(folder, "remote", "add", "origin", "https://github.com/example/slipway")
    # The objects are those of the source, without a copy.
    objects = _git(event.source, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    (folder / ".git/objects/info/alternates").write_text(f"{objects}\n")
    for name, value in {**refs, _here(event): event.commit}.items():
        _git(folder, "update-ref", name, value)
    branch = ["-B", event.ref_name] if event.ref.startswith("refs/heads/") else []
    _git(folder, "checkout", "--quiet", "--force", *branch, _here(event))


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise WorkflowError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _set_up_python(inputs: Inputs, machine: Machine, world: World) -> Effects:
    """Python on PATH: the one that runs this program, which must have the version of the file."""
    version = (machine.workspace / inputs["python-version-file"]).read_text().strip()
    folder = folder_of_python()
    if not (Path(folder) / f"python{version}").exists():
        raise WorkflowError(f"{inputs['python-version-file']} names Python {version}, which {folder} does not have.")
    return Effects([folder])


def _set_up_go(inputs: Inputs, machine: Machine, world: World) -> Effects:
    """The Go program on PATH. Its cache of modules and packages is that of this machine in a full run."""
    if not any(machine.workspace.glob(inputs["cache-dependency-path"])):
        raise WorkflowError(f"cache-dependency-path: {inputs['cache-dependency-path']} matches no file.")
    go = find_go()
    version = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()
    if not re.match(rf"go{re.escape(inputs['go-version'])}(\.|$)", version):
        raise WorkflowError(f"The workflow uses Go {inputs['go-version']}, and this machine has {version}.")
    for path in ("~/go/pkg/mod", "~/.cache/go-build"):
        _restore(path, machine, world)
    return Effects([str(Path(go).parent), str(machine.home / "go/bin")])


def _cache(inputs: Inputs, machine: Machine, world: World) -> Effects:
    """Nothing, or links to the caches of this machine."""
    hits = [_restore(path, machine, world) for path in inputs["path"].split()]
    return Effects(outputs={"cache-hit": "true" if all(hits) else "false"})


def _restore(path: str, machine: Machine, world: World) -> bool:
    if not path.startswith("~/"):
        raise WorkflowError(f"{path}: a path of a cache must be in the home.")
    if path not in world.caches:
        return False
    here = machine.home / path.removeprefix("~/")
    here.parent.mkdir(parents=True, exist_ok=True)
    here.symlink_to(world.caches[path])
    return True


def _upload(inputs: Inputs, machine: Machine, world: World) -> Effects:
    """A copy of the folder for the jobs that need this one."""
    folder = machine.workspace / inputs["path"]
    if not folder.is_dir() or not any(folder.iterdir()):
        raise WorkflowError(f"{inputs['path']} has no files to upload.")
    shutil.copytree(folder, world.artifacts / inputs["name"])
    return Effects()


def _download(inputs: Inputs, machine: Machine, world: World) -> Effects:
    """The files of an artifact of an earlier job."""
    folder = world.artifacts / inputs["name"]
    if not folder.is_dir():
        raise WorkflowError(f"No job has uploaded {inputs['name']}.")
    shutil.copytree(folder, machine.workspace / inputs["path"], dirs_exist_ok=True)
    return Effects()


def _publish(inputs: Inputs, machine: Machine, world: World) -> Effects:
    """Nothing, because PyPI is not available. The action uploads every file: the folder must have packages only."""
    files = sorted(file.name for file in (machine.workspace / inputs["packages-dir"]).iterdir())
    if not files or not all(name.endswith((".whl", ".tar.gz")) for name in files):
        raise WorkflowError(f"{inputs['packages-dir']} must have packages only: {', '.join(files) or 'no files'}.")
    return Effects()


@dataclass(frozen=True)
class Action:
    """The function of an action, and the inputs that it knows: those with `!` are required."""

    run: Callable[[Inputs, Machine, World], Effects]
    inputs: str = ""

    def check(self, name: str, given: Inputs) -> None:
        """Raise WorkflowError if an input is unknown or missing."""
        known = {each.rstrip("!"): each.endswith("!") for each in self.inputs.split()}
        wrong = [each for each in given if each not in known]
        wrong += [each for each, required in known.items() if required and not given.get(each)]
        if wrong:
            raise WorkflowError(f"{name}: {', '.join(wrong)}: an unknown input, or a missing one.")


ACTIONS: Mapping[str, Action] = {
    "actions/checkout": Action(_checkout, "fetch-depth"),
    "actions/setup-python": Action(_set_up_python, "python-version-file!"),
    "actions/setup-go": Action(_set_up_go, "go-version! cache-dependency-path!"),
    "actions/cache": Action(_cache, "path! key!"),
    "actions/upload-artifact": Action(_upload, "name! path! if-no-files-found"),
    "actions/download-artifact": Action(_download, "name! path!"),
    "pypa/gh-action-pypi-publish": Action(_publish, "packages-dir!"),
}
