"""Invalid input: one sentence for each mistake, the right exit code, no traceback, no partial files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import LONG, SHORT, Launcher, Result, drop_file_privileges
from tests.prerequisites import require


def rejected(result: Result, *texts: str, code: int = 1) -> str:
    """Return the only error line of a rejected command; it must contain all of `texts`."""
    assert result.code == code, result.err
    assert result.out == ""
    assert "Traceback" not in result.err
    errors = [line for line in result.err.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, result.err
    for text in texts:
        assert text in errors[0]
    return errors[0]


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("run: {name: demo\n", ["run.yaml:2"]),
        ("run:\n  name: a\n name: b\n", ["run.yaml:3"]),
        ("- a list\n", ["run.yaml:1"]),
        (SHORT + "slise: {}\n", ["run.yaml:4", "slise", "slice"]),
        (SHORT.replace("maxRestarts: 0", "maxRestarts: many"), ["run.yaml:1", "run.maxRestarts", "many"]),
        (SHORT.replace("name: demo", "name: Demo_1"), ["run.yaml:1", "run.name", "Demo_1"]),
        (SHORT.replace("name: demo", "name: ../demo"), ["run.yaml:1", "run.name", "../demo"]),
        (SHORT.replace("command: [sh, -c, 'echo hello']", "command: [no-such-program]"), ['"no-such-program"']),
    ],
)
def test_invalid_values(launcher: Launcher, text: str, texts: list[str]) -> None:
    rejected(launcher("submit", "-f", launcher.write("run.yaml", text)), *texts)
    assert not launcher.home.exists()


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("missing.txt", None, ["missing.txt"]),
        ("empty.txt", b"", ["empty.txt"]),
        pytest.param("latin.txt", b"caf\xe9 " * 1000, ["latin.txt"], id="latin.txt"),
        ("picture.png", b"\x89PNG", ["picture.png"]),
    ],
)
def test_invalid_training_data(launcher: Launcher, name: str, content: bytes | None, texts: list[str]) -> None:
    if content is not None:
        (launcher.folder / name).write_bytes(content)
    text = "run: {name: demo, kind: local}\nslice: {accelerator: cpu}\nstorage: {kind: local}\n"
    text += f"data: {{files: [{name}]}}\n"
    file = launcher.write("run.yaml", text)
    rejected(launcher("submit", "-f", file), *texts)
    rejected(launcher("submit", "-f", file, "--dry-run"), *texts)
    assert not launcher.home.exists()


# (values with a mistake that new users make, on top of the quickstart; the complete stderr)
MISTAKES = [
    ("train:\n", "mine.yaml:1: train has no value (null); set a value, or remove the key."),
    ("run: null\n", "mine.yaml:1: run has no value (null); set a value, or remove the key."),
    ("train: [steps: 3]\n", "mine.yaml:1: train is a list; it must be a map of keys to values."),
    ("storage: local\n", 'mine.yaml:1: storage is text ("local"); it must be a map of keys to values.'),
    ("data: {files: a.txt}\n", 'mine.yaml:1: data.files is text ("a.txt"); it must be a list, such as ["a.txt"].'),
    ("run:\n  name: a\n  name: b\n", 'mine.yaml:3: duplicate key "name": it is already set on line 2;'
     " keep one of the two."),
    ("run:\n\tname: a\n", "mine.yaml:2: this is not valid YAML: a tab is not allowed here; indent with spaces."),
    ("run: {name: a\n", 'mine.yaml:2: this is not valid YAML: the "{" that opens on line 1 is not closed here;'
     ' a "," or its end is missing.'),
    ("run: 'a\n", "mine.yaml:2: this is not valid YAML: the quote that opens on line 1 is not closed."),
    ("run: {name: a}}\n", 'mine.yaml:1: this is not valid YAML: there is one "}" too many.'),
    ("run:\n  name: a\n kind: local\n", "mine.yaml:3: this is not valid YAML: this does not continue the block that"
     " begins on line 1; fix the indentation."),
    ("run: {name: a}\n---\nrun: {name: b}\n", "mine.yaml:3: a second document begins here, which Helm 3 drops and"
     " Helm 4 merges; move it to its own file."),
    ("run: {name: Modèle.2}\n", 'mine.yaml:1: run.name: "Modèle.2" is not a valid name; use lowercase letters, digits'
     ' and hyphens, starting with a letter and not ending with a hyphen. For example "modele-2".'),
    ("run: {name: 7b}\n", 'mine.yaml:1: run.name: "7b" is not a valid name; use lowercase letters, digits and'
     ' hyphens, starting with a letter and not ending with a hyphen. For example "run-7b".'),
    ("run: {maxRestarts: -1}\n", "mine.yaml:1: run.maxRestarts is -1; it must be at least 0 and at most 10000."),
    ("run: {command: echo hi}\n", 'mine.yaml:1: run.command is text ("echo hi"); it must be a list, such as'
     ' ["echo", "hi"].'),
    ("train: {steps: 0}\n", "mine.yaml:1: train.steps is 0; it must be at least 1."),
    ("train: {steps: -5}\n", "mine.yaml:1: train.steps is -5; it must be at least 1."),
    ('train: {learning_rate: "3e-4"}\n', 'mine.yaml:1: train.learning_rate is text ("3e-4"); MaxText requires a number;'
     " remove the quotes."),
    ("train: {checkpoint_period: 0}\n", "mine.yaml:1: train.checkpoint_period is 0; it must be at least 1."),
    ("slice: {hosts: -1}\n", "mine.yaml:1: slice.hosts is -1; it must be at least 0 and at most 100000."),
    ("slice: {accelerator: v6e}\n", "mine.yaml:1: a local run uses this machine's CPU or"
     " GPUs: slice.accelerator must be cpu or a GPU of the table, not v6e."),
    ("storage: {kind: }\n", "mine.yaml:1: storage.kind has no value (null); set a value, or remove the key."),
    ("data: {heldOut: {fraction: 2}}\n", "mine.yaml:1: data.heldOut.fraction is 2; it must be at least 0 and at most"
     " 0.5."),
    ("data: {corpus: '', files: ['gs://bucket/a.txt']}\n", 'mine.yaml:1: data.files: "gs://bucket/a.txt" is a URL; the'
     " trainer reads files: copy the text, or mount its bucket."),
    ("worker: {env: {LEVEL: 1}}\n", "mine.yaml:1: worker.env.LEVEL is the number 1; it must be text; put it in"
     " quotes."),
    ("run:\u00a0{name: a}\n", "mine.yaml:1: unknown key run:\u00a0{name; it contains the invisible character U+00A0;"
     " write the key again."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), MISTAKES, ids=[text.strip()[:30] for text, _ in MISTAKES])
def test_mistakes_in_values(launcher: Launcher, text: str, sentence: str) -> None:
    result = launcher("submit", "-f", "quickstart", "-f", launcher.write("mine.yaml", text))
    assert (result.code, result.out, result.err) == (1, "", f"Error: {sentence}\n")
    assert not launcher.home.exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "slice: {hosts: 1000}\ntrain: {ici_fsdp_parallelism: 8, ici_data_parallelism: 125}\n",
            "mine.yaml:1: slice.hosts: 1000 workers are too many for this machine's ",
        ),
        ("data: {tokenizer: {path: no.model}}\n", "mine.yaml:1: data.tokenizer.path: "),
        ("data: {corpus: '', files: ['*.txt']}\n", "mine.yaml:1: data.files: no file matches "),
        ("data: {corpus: '', files: [closed]}\n", "mine.yaml:1: data.files: "),
        ("data: {tokenizer: {kind: huggingface}}\n", "mine.yaml:1: data.tokenizer.kind is huggingface, so"),
    ],
)
def test_mistakes_in_what_values_refer_to(launcher: Launcher, text: str, sentence: str) -> None:
    closed = launcher.folder / "closed"
    closed.mkdir(mode=0)
    file = launcher.write("mine.yaml", text)
    result = launcher("submit", "-f", "quickstart", "-f", file, before=drop_file_privileges)
    closed.chmod(0o755)
    assert rejected(result).startswith(f"Error: {sentence}")
    assert not launcher.home.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["submit", "-f", "empty.yaml"], "there are no values; name a file with -f, such as the preset quickstart."),
        (["submit", "-f", "quickstart", "--name", ""], "--name: the run has no name; set it with --name NAME"),
        (
            ["submit", "-f", "quickstart", "--set", "steps=3"],
            "--set steps: unknown key steps; did you mean train.steps?",
        ),
        (["submit", "-f", "quickstart", "--set", "train.steps="], '--set train.steps: train.steps is text ("")'),
        (["submit", "-f", "utf-16.yaml"], "utf-16.yaml:1: the file is not UTF-8 text; save it as UTF-8."),
        (["submit", "-f", "cp1252.yaml"], "cp1252.yaml:2: the file is not UTF-8 text; save it as UTF-8."),
        (["submit", "-f", "windows.yaml"], "windows.yaml:2: unknown key run.nmae; did you mean run.name?"),
    ],
)
def test_mistakes_on_the_command_line(launcher: Launcher, arguments: list[str], sentence: str) -> None:
    for name, content in {
        "empty.yaml": b"# nothing yet\n",
        "utf-16.yaml": "run:\r\n  name: a\r\n".encode("utf-16"),
        "cp1252.yaml": b"run:\r\n  name: \x93a\x94\r\n",
        "windows.yaml": b"\xef\xbb\xbfrun:\r\n  nmae: a\r\n",
    }.items():
        (launcher.folder / name).write_bytes(content)
    assert rejected(launcher(*arguments)).startswith(f"Error: {sentence}")
    assert not launcher.home.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-f", ""], '-f "" is not a valid file name; give a values file, or the name of a preset such as quickstart.'),
        (["-f", "quickstart", "--set", "train.steps"], '--set "train.steps": the key "steps" has no value.'),
    ],
)
def test_a_missing_file_or_value_is_wrong_usage(launcher: Launcher, arguments: list[str], sentence: str) -> None:
    assert rejected(launcher("submit", *arguments), code=2).startswith(f"Error: {sentence}")


def test_the_same_file_twice_counts_once(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT)
    assert launcher("values", "-f", file, "-f", file).out == launcher("values", "-f", file).out


@pytest.mark.parametrize("verb", ["submit", "check", "render", "diff", "install queues", "diff ray-cluster"])
def test_no_values_at_all(launcher: Launcher, verb: str) -> None:
    result = launcher(*verb.split())
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines() == [
        "Error: No values are given: use -f FILE or --set.",
        "Hint: launcher presets lists values files to begin with, such as quickstart; launcher init writes one.",
    ]


def test_a_cluster_run_without_a_cluster(launcher: Launcher) -> None:
    text = """\
run: {name: demo, kind: job-set, command: [hostname]}
team: {name: research}
slice: {accelerator: v6e, topology: 4x4}
storage: {bucket: bucket}
image: {repository: i, tag: v1}
"""
    result = launcher("submit", "-f", launcher.write("run.yaml", text))
    rejected(result, "so there is no cluster to connect to")
    hint = result.err.splitlines()[-1]
    assert hint.startswith("Hint: Set KUBECONFIG ") and hint.endswith(" To run on this machine: --set run.kind=local.")


@pytest.mark.parametrize(
    "verb",
    ["install queues --set priorities.high.value=5", "uninstall queues -y", "list -n team"],
)
def test_a_cluster_verb_without_a_cluster(launcher: Launcher, verb: str) -> None:
    result = launcher(*verb.split())
    rejected(result, "so there is no cluster to connect to")
    hint = result.err.splitlines()[-1]
    assert hint.startswith("Hint: Set KUBECONFIG ") and "run.kind" not in hint


def test_a_kubeconfig_that_is_missing_or_invalid(launcher: Launcher) -> None:
    """Without a kubeconfig there is no warning. With an unusable one, a list of this machine's runs is incomplete."""
    assert launcher("submit", "-f", launcher.write("run.yaml", SHORT)).code == 0
    assert launcher("list").err == ""
    missing, broken = launcher.folder / "away", launcher.write("broken", "a: [")
    none = f"KUBECONFIG names {missing}, which does not exist, so there is no cluster to connect to."
    for file, message in ((str(missing), none), (broken, f"The kubeconfig {broken} is not valid YAML: ")):
        env = {"KUBECONFIG": file}
        listed = launcher("list", "-o", "json", env=env)
        assert (listed.code, [run["name"] for run in listed.json]) == (0, ["demo"])
        assert listed.err.startswith(f"Warning: {message}") and listed.err.count("\n") == 1
        assert listed.err.endswith(" Only this machine was searched.\n")
        assert (launcher("status", "demo", env=env).err, launcher("list", "--local", env=env).err) == ("", "")
        for verb in ("status", "explain", "logs", "cancel"):
            rejected(launcher(verb, "dmeo", env=env), f'The run "dmeo" was not found on this machine. {message}')


def test_a_file_that_is_missing(launcher: Launcher) -> None:
    rejected(launcher("submit", "-f", "rnu.yaml"), '"rnu.yaml"', code=2)
    rejected(launcher("values", "-f", "rnu.yaml"), '"rnu.yaml"', code=2)
    rejected(launcher("check", "-f", "quickstrat"), "quickstart", code=2)


def test_a_folder_instead_of_a_file(launcher: Launcher) -> None:
    rejected(launcher("values", "-f", "."), "folder")


def test_a_file_without_read_permission(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT)
    (launcher.folder / file).chmod(0)
    rejected(launcher("values", "-f", file, before=drop_file_privileges), "run.yaml", "Permission denied")


def test_a_folder_without_read_permission(launcher: Launcher) -> None:
    closed = launcher.folder / "closed"
    closed.mkdir()
    (closed / "run.yaml").write_text(SHORT)
    closed.chmod(0)
    rejected(
        launcher("values", "-f", "closed/run.yaml", before=drop_file_privileges), "closed/run.yaml", "Permission denied"
    )


def test_set_without_a_value(launcher: Launcher) -> None:
    rejected(launcher("values", "--set", "novalue"), "novalue", code=2)


@pytest.mark.parametrize(
    "arguments",
    [
        ["uninstall", "a", "b"],
        ["status"],
        ["status", "a", "b"],
        ["values", "-o", "xml"],
        ["logs", "a", "--worker", "-1"],
    ],
)
def test_wrong_usage(launcher: Launcher, arguments: list[str]) -> None:
    result = launcher(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"Usage: launcher {arguments[0]} ")
    assert result.err.splitlines()[-1].startswith("Error: ")


# --- an unusable home folder ---

VERBS = (["submit", "-f", "run.yaml"], ["list"], ["status", "demo"], ["cancel", "demo"], ["delete", "demo", "--yes"])


@pytest.mark.parametrize("arguments", VERBS, ids=lambda arguments: arguments[0])
def test_a_home_without_read_permission(launcher: Launcher, arguments: list[str]) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    (launcher.home / "runs").chmod(0)
    try:
        rejected(launcher(*arguments, before=drop_file_privileges), "Permission denied", str(launcher.home))
    finally:
        (launcher.home / "runs").chmod(0o755)
    assert launcher.runs == ["demo"]


def test_a_home_without_write_permission(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT)
    launcher("submit", "-f", file)
    (launcher.home / "runs").chmod(0o555)
    (launcher.home / "runs" / "demo").chmod(0o555)
    rejected(
        launcher("submit", "-f", file, "--name", "two", before=drop_file_privileges),
        "Permission denied",
        "cannot be submitted",
    )
    config = ("--set", "run.maxRestarts=1", "--continue")
    rejected(
        launcher("submit", "-f", file, *config, before=drop_file_privileges), "Permission denied", "cannot be submitted"
    )
    rejected(launcher("delete", "demo", "--yes", before=drop_file_privileges), "Permission denied", "cannot be deleted")
    assert launcher("status", "demo", before=drop_file_privileges).code == 0
    assert (launcher.runs, launcher.record().attempt) == (["demo"], 1)
    (launcher.home / "runs").chmod(0o755)
    (launcher.home / "runs" / "demo").chmod(0o755)


@pytest.mark.parametrize("arguments", VERBS[:2], ids=lambda arguments: arguments[0])
def test_a_home_that_is_a_file(launcher: Launcher, arguments: list[str]) -> None:
    launcher.write("run.yaml", SHORT)
    launcher.home.touch()
    rejected(launcher(*arguments), "Not a directory", str(launcher.home))


def test_a_full_disk(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT)
    disk = _FullDisk(launcher)
    rejected(disk("submit", "-f", file), "No space left on device", str(launcher.home))
    assert disk.files() == ["filler", "runs"]


def test_a_full_disk_and_a_run_to_resume(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT.replace("echo hello", "test -e mended"))
    disk = _FullDisk(launcher, before=f"call submit -f {file}; touch mended")
    rejected(disk("submit", "-f", file), "No space left on device", str(launcher.home))
    files = ["lock", "log.txt", "origins.json", "record.json", "run.json"]
    assert disk.files() == ["filler", "runs", "demo", *files]


def test_a_run_that_fills_its_disk_reports_how_it_ended(launcher: Launcher) -> None:
    """The record has reserved space on the disk."""
    fills = "cat /dev/zero > $SLIPWAY_RUN_FOLDER/filler; exit 7"
    file = launcher.write("run.yaml", SHORT.replace("echo hello", fills))
    disk = _FullDisk(launcher, before=f"call submit -f {file}")
    result = disk("status", "demo", "-o", "json")
    assert (result.json["state"], result.json["reason"]) == ("failed", "The command ended with exit code 7.")


class _FullDisk:
    """The launcher with its home on a full disk of 64 KiB; it lists the files on the disk afterwards."""

    def __init__(self, launcher: Launcher, before: str = "") -> None:
        probe = subprocess.run(["unshare", "-rm", "true"], check=False) if shutil.which("unshare") else None
        require(
            probe is not None and probe.returncode == 0,
            "The test mounts a file system in a namespace. Run it on Linux with unshare (util-linux), as root.",
        )
        self._launcher = launcher
        self._before = before
        self._report = launcher.folder.parent / "report"

    def __call__(self, *arguments: str) -> Result:
        home = self._launcher.home
        home.mkdir()
        command = self._launcher.folder / "launcher.sh"
        script = f"""
            mount -t tmpfs -o size=64k none '{home}' || exit 99
            call() {{ "$PYTHON" -m launcher "$@"; }}
            {{ {self._before or ":"}; }} >/dev/null 2>&1
            cat /dev/zero > '{home}/filler' 2>/dev/null
            call "$@"
            code=$?
            cd '{home}' && ls -A . runs runs/* | grep -v : | grep . > '{self._report}'
            exit $code
        """
        command.write_text(script)
        done = subprocess.run(
            ["unshare", "-rm", "sh", str(command), *arguments],
            env={**self._launcher.env, "PYTHON": sys.executable},
            cwd=self._launcher.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def files(self) -> list[str]:
        return self._report.read_text().split()


# --- folders of another version of Slipway ---


def _change(launcher: Launcher, name: str, change: Callable[[dict[str, object]], object]) -> Path:
    path = launcher.home / "runs" / "demo" / name
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))
    return path


@pytest.mark.parametrize(
    "arguments",
    [*VERBS[:1], *VERBS[2:], ["logs", "demo"], ["wait", "demo"], ["submit", "-f", "run.yaml", "--dry-run"]],
    ids=lambda arguments: "-".join(arguments[:4]),
)
def test_a_run_of_a_newer_version(launcher: Launcher, arguments: list[str]) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    path = _change(launcher, "record.json", lambda tree: tree.update(format=2, state="dreaming"))
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    rejected(launcher(*arguments), str(path.parent), "newer Slipway", "upgrade")
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_a_run_of_a_newer_version_among_others(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    launcher("submit", "-f", "run.yaml", "--name", "other")
    _change(launcher, "record.json", lambda tree: tree.update(format=2))
    result = launcher("list", "-o", "json")
    assert result.code == 0
    assert [run["name"] for run in result.json] == ["other"]
    assert result.err.startswith("Warning: The run in ") and len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [(name, text) for name in ("record.json", "run.json") for text in ("", "{", "1", "[1]", "{}", '{"format": 1}')],
)
def test_a_damaged_run(launcher: Launcher, name: str, text: str) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    path = launcher.home / "runs" / "demo" / name
    path.write_text(text)
    result = launcher("status", "demo")
    if name == "run.json" and text in ("{}", '{"format": 1}'):
        assert result.code == 0  # `status` cannot detect the damage, because the file holds a JSON object
    else:
        rejected(result, str(path), "damaged")


def test_a_bug_keeps_its_traceback(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", LONG), "--detach")
    package = launcher.folder / "sitecustomize.py"
    package.write_text("from launcher.backends.local import backend\nbackend.LocalBackend.status = lambda *_: 1 / 0\n")
    path = os.pathsep.join([str(launcher.folder), launcher.env["PYTHONPATH"]])
    result = launcher("status", "demo", env={"PYTHONPATH": path})
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith("Traceback (most recent call last):\n")
    assert result.err.splitlines()[-2:] == [
        "ZeroDivisionError: division by zero",
        "This is a bug in Slipway; please report it with the lines above.",
    ]
