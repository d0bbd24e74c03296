"""Values files without -f, and the words and spellings that users of other tools type."""

from __future__ import annotations

import subprocess

import pytest

from launcher import plugins
from launcher.cli.verbs import CORE, verbs
from tests.cli.conftest import SHORT, Launcher
from tests.docs.commands import problems
from tests.docs.pages import CHECKOUT

OVERLAY = "run: {name: other}\ntrain: {steps: 3}\n"


def test_files_without_the_option_keep_their_order(launcher: Launcher) -> None:
    a, b = launcher.write("a.yaml", SHORT), launcher.write("b.yaml", OVERLAY)
    with_option = launcher("values", "--origins", "-f", a, "-f", b)
    assert ["run.name", '"other"', "b.yaml:1"] in [line.split() for line in with_option.out.splitlines()]
    for arguments in ([a, b], ["-f", a, b], [a, "-f", b], [a, "-o", "text", b], ["--", a, b]):
        assert launcher("values", "--origins", *arguments) == with_option
    assert launcher("values", b, a, "-o", "json").json["run"]["name"] == "demo"


@pytest.mark.parametrize("verb", ["submit", "check", "render", "values", "diff"])
def test_a_file_is_an_argument_of_every_verb_with_values(launcher: Launcher, verb: str) -> None:
    result = launcher(verb, "no-such-file.yaml")
    assert result.code == 2
    assert result.err.startswith('Error: The values file "no-such-file.yaml" was not found')


def test_a_release_is_not_a_file(launcher: Launcher) -> None:
    result = launcher("install", "queues", "ours", "./no-such-file")
    assert (result.code, 'The values file "./no-such-file" was not found' in result.err) == (2, True)
    result = launcher("install", "queus", "queues/one-team")
    assert (result.code, result.err.splitlines()[-1]) == (
        2,
        "Error: Invalid value for 'queues|ray-cluster|serve': 'queus' is not one of 'queues', 'ray-cluster', 'serve'.",
    )


def test_submit_of_a_file(launcher: Launcher) -> None:
    result = launcher("submit", launcher.write("run.yaml", SHORT), "--detach", "-o", "JSON")
    assert (result.code, result.json["name"]) == (0, "demo")


@pytest.mark.parametrize(
    ("word", "verb"),
    [
        ("ps", "launcher list"),
        ("get", "launcher list"),
        ("stop", "launcher cancel"),
        ("kill", "launcher cancel"),
        ("resume", "launcher submit, which resumes a run of the same name"),
        ("describe", "launcher status, or launcher explain"),
        ("exec", "launcher shell"),
        ("train", "launcher submit"),
        ("run", "launcher submit"),
    ],
)
def test_a_command_of_another_tool(launcher: Launcher, word: str, verb: str) -> None:
    result = launcher(word, "demo")
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[-1] == f"Error: No such command '{word}'. Use: {verb}."


def test_help_and_version_are_commands_too(launcher: Launcher) -> None:
    assert launcher("help") == launcher("--help")
    assert launcher("help", "submit") == launcher("submit", "--help")
    assert launcher("version") == launcher("--version")


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_has_an_example_and_a_page(launcher: Launcher, verb: str) -> None:
    product = plugins.product_of(verb)
    described = CORE[verb] if product is None else product.commands[verb]
    commands, page = described.examples, described.page
    assert (CHECKOUT / page).is_file()
    for command in commands:
        assert f"launcher {verb}" in command
        assert (
            problems(command, ["mine.yaml", "team.yaml", "cluster.yaml", "queues.yaml", "model.yaml", "run.yaml"]) == []
        )
    shown = launcher(verb, "--help").out
    assert all(f"  {command}\n" in shown for command in commands)
    assert f"Page: {page}\n" in shown


def test_check_prints_a_syntax_error_as_data(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", "run:\n  name: 'demo\n")
    result = launcher("check", file, "-o", "json")
    assert (result.code, result.err) == (1, "")
    (problem,) = result.json
    assert (problem["rule"], problem["severity"], problem["file"], problem["line"]) == ("syntax", "error", file, 3)
    assert launcher("check", file).out.startswith(f"error: {file}:3: this is not valid YAML: ")


def test_check_reads_standard_input_once(launcher: Launcher) -> None:
    text = "data: {corpus: '', files: [no-such-text.txt]}\n"
    for arguments in (["quickstart", "-"], ["quickstart", "-f", "-"]):
        process = launcher.start("check", *arguments, stdin=subprocess.PIPE)
        out, err = process.communicate(text, timeout=60)
        assert (process.returncode, err) == (1, "")
        assert "standard input:1: data.files: " in out


def test_a_current_folder_that_was_removed(launcher: Launcher) -> None:
    gone = launcher.folder / "gone"
    gone.mkdir()
    process = launcher.start("check", "quickstart", prefix=("sh", "-c", f'cd {gone}; rmdir {gone}; "$@"', "sh"))
    out, err = process.communicate(timeout=60)
    message = "Error: The current folder no longer exists. Change to another folder and try again.\n"
    assert (process.returncode, out, err) == (1, "", message)


def test_text_that_the_output_cannot_encode(launcher: Launcher) -> None:
    ascii_only = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    process = launcher.start("check", "quickstart", launcher.write("run.yaml", "run: {name: Ü}\n"), env=ascii_only)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, "")
    assert '"\\xdc" is not a valid name' in out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["quickstart", "--set", "train.steps = 5"], 2, 'there is a space before or after the key "steps"; remove it.'),
        (["quickstart", "--set", "train.steps"], 2, 'the key "steps" has no value.'),
        (["quickstart", "--set", "train.stepz=5"], 1, "--set train.stepz: MaxText has no key stepz"),
        (["https://example.com/x.yaml"], 2, "is a URL, but values files are read from this machine."),
        (["models/llama"], 2, "Did you mean the presets models/llama"),
        (["v6e"], 2, "Did you mean the presets slices/v6e-"),
        (["models"], 2, "Did you mean the presets models/deepseek2-16b, models/gemma3-12b or models/gemma3-27b?"),
        (["no-preset-like-this"], 2, "Hint: launcher presets lists the presets."),
        (["flat.yaml"], 1, 'A key needs a space after its colon: "steps: 5".'),
        (["top.yaml"], 1, 'A key needs a space after its colon: "run: 5".'),
        (["large.yaml"], 1, "large.yaml:1: the file is too large; a values file can have at most 1 MB."),
        (["/dev/zero"], 1, "/dev/zero:1: the file is too large"),  # it has no end
        (["quickstart", "train.steps=5"], 2, "Hint: To set a value: --set train.steps=5"),
        (["quickstart", "--train.steps=5"], 2, "To set a value: --set train.steps=VALUE"),
        (["quickstart", "--set", "image.tag=1"], 1, "put it in quotes that the shell keeps: --set 'image.tag=\"…\"'."),
        (["space.yaml"], 1, 'MaxText has no key "steps "; there is a space before or after it; remove the space.'),
        (["image.yaml"], 1, 'image is text ("nginx:latest"); it must be a map of keys to values.\n'),
        (["files.yaml"], 1, 'it must be a list, such as ["a.txt", "b.txt"].'),
        (["-f", "gs://b/v.yaml"], 2, "Download it first: gcloud storage cp gs://b/v.yaml ."),
        (
            ["queues/three-teams"],
            1,
            "unknown key flavors; it is a key of charts/queues: launcher check queues -f FILE.",
        ),
        (["quickstart", "--set", "data.files={a.txt}"], 1, 'to use the files, set data.corpus: ""'),
    ],
)
def test_a_mistake_has_a_hint(launcher: Launcher, arguments: list[str], code: int, says: str) -> None:
    launcher.write("flat.yaml", "train:\n  steps:5\n")
    launcher.write("top.yaml", "run:5\n")
    launcher.write("large.yaml", "a: 1\n#" + "x" * 1_200_000)
    launcher.write("space.yaml", 'train:\n  "steps ": 7\n')
    launcher.write("image.yaml", "image: nginx:latest\n")
    launcher.write("files.yaml", "data:\n  files: a.txt, b.txt\n")
    result = launcher("submit", *arguments)
    assert (result.code, result.out) == (code, "")
    assert says in result.err


def test_values_of_a_run_are_not_those_of_the_queues(launcher: Launcher) -> None:
    result = launcher("check", "queues", "-f", "quickstart")
    assert result.code == 1
    assert "unknown key slice; it is a key of a run: launcher check -f FILE.\n" in result.out
