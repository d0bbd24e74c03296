"""launcher init without a cluster."""

from __future__ import annotations

import json

import jsonschema

from launcher import paths
from launcher.backends import init_values
from launcher.config.values.files import read_text
from tests.cli.conftest import Launcher


def test_a_file_for_this_machine(launcher: Launcher) -> None:
    result = launcher("init")
    assert (result.code, result.out) == (0, "")
    assert result.err == "run.yaml was written. To start the run: launcher submit -f run.yaml\n"
    text = (launcher.folder / "run.yaml").read_text()
    assert f"# yaml-language-server: $schema={paths.presets_dir()}/overlay.schema.json\n" in text
    assert launcher("init", "--out", "-", "--local").out == text
    schema = json.loads((paths.presets_dir() / "overlay.schema.json").read_bytes())
    jsonschema.validate(read_text(text.encode(), "run.yaml").tree, schema)
    # The suggested command is complete, and other runs in this folder have no values of it.
    defaults = {"SLIPWAY_NO_DEFAULTS": "", "XDG_CONFIG_HOME": str(launcher.folder)}
    result = launcher("check", "-f", "run.yaml", env=defaults)
    assert (result.code, result.err) == (0, "No problems found.\n")
    # MaxText's default model has 1.1 billion parameters.
    assert launcher("values", "-f", "run.yaml", "-o", "json", env=defaults).json["train"]["base_emb_dim"] == 128
    assert launcher("values", "-o", "json", env=defaults).json == {}
    assert (
        launcher("init", "--out", "more.yaml").err
        == "more.yaml was written. To start the run: launcher submit -f more.yaml\n"
    )


def test_a_file_is_never_overwritten(launcher: Launcher) -> None:
    launcher.write("team.yaml", "run: {}\n")
    result = launcher("init", "--out", "team.yaml")
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "Error: team.yaml already exists; nothing was written.\n"
        "Hint: Choose another file with --out FILE; --out - prints it.\n"
    )
    assert (launcher.folder / "team.yaml").read_text() == "run: {}\n"
    result = launcher("init", "--out", "no/folder.yaml")
    assert (result.code, result.err) == (1, "Error: no/folder.yaml cannot be written: No such file or directory.\n")


def test_the_names_of_a_cluster_are_quoted() -> None:
    found = init_values._Found(
        "ns", "no", "010", ("a/b",), ("low", "high"), "run", {"image": {"repository": "x: y", "tag": "1.0"}}
    )
    text = "\n".join(init_values._sections(found))
    assert read_text(text.encode(), "x").tree == {
        "run": {"kind": "ray-job"},
        "team": {"name": "no", "namespace": "ns"},
        "queue": {"name": "010"},
        "image": {"repository": "x: y", "tag": "1.0"},
    }
    assert "# priority: low  # or: high\n" in text
