"""The folder of a run, and values files."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import yaml

from launcher import api
from launcher.errors import ExitCode
from launcher.paths import charts_dir, presets_dir
from tests.charts import helm
from tests.fuzz import sandbox
from tests.fuzz.fake_cluster import as_lines
from tests.fuzz.mutation import HOSTILE
from tests.fuzz.target import Documents, Target, run_config
from tests.tools import tool

_PRESETS = (
    "quickstart",
    "tutorials/llama3-8b-v6e-16",
    "tutorials/multislice-v5e",
    "models/mixtral-8x7b",
    "tuned/llama3.1-8b-v5e-4x4",
)


class FolderTarget(Target):
    """The folder of a local run, and a folder that only a trainer wrote."""

    texts = (
        "running",
        "restarting",
        "starting",
        *(str(line).rpartition("METRICS ")[2] for line in HOSTILE["lines"] if isinstance(line, str)),
    )

    def bases(self) -> list[str]:
        return ["succeeded", "running", "bucket"]

    @functools.cache  # noqa: B019
    def documents(self, base: str) -> Documents:
        times = {
            "submitted": "2026-11-21T06:25:00.000Z",
            "started": "2026-11-21T06:25:01.000Z",
            "ended": "2026-11-21T06:30:00.000Z",
        }
        record = {
            "format": 1,
            "kind": "local",
            "name": "demo",
            "namespace": "default",
            "id": "0" * 32,
            "attempt": 2,
            "state": base,
            **times,
        }
        record |= {
            "exit_code": 0,
            "reason": "",
            "restarts": 1,
            "events_from": 0,
            "pid": None,
            "host": "here",
            "sweep": "swept",
        }
        record |= {
            "sweep_number": 1,
            "sweep_values": {"train.steps": 4},
            "history": [{"attempt": 1, "state": "failed", **times}],
        }
        lines = [
            (line.partition(" SLIPWAY_")[2] or line.partition("SLIPWAY_")[2]).partition(" ") for line in HOSTILE["log"]
        ]
        parsed = [(kind, json.loads(text)) for kind, _, text in lines if text]
        files: Documents = {
            "run.json": run_config(),
            "origins.json": {"train.steps": "values.yaml:3", "run.name": "--set 1"},
            "metrics.jsonl": [entry for kind, entry in parsed if kind == "METRICS"],
            "events.jsonl": [entry for kind, entry in parsed if kind == "EVENT"],
            "evaluations.jsonl": [
                {"task": task, "step": 9, "metrics": {"acc": 0.25, "acc_norm": 0.5}, "stderr": {"acc": 0.01}}
                | {
                    "higher_is_better": {"acc": True},
                    "samples": 50,
                    "limit": None,
                    "harness": "lm-eval",
                    "time": times["submitted"],
                }
                for task in ("arc_easy", "hellaswag")
            ],
            "log.txt": ["hello", *HOSTILE["log"]],
        }
        return files if base == "bucket" else {"record.json": record, **files}

    def arguments(self, base: str, random: Random) -> tuple[str, ...]:
        folder = random.choice([("report", "./home/runs/demo"), ("eval", "./home/runs/demo", "--compare")])
        if base == "bucket":
            return folder
        one = (("list",), ("list", "--sweep", "swept"), ("status", "demo"), ("status", "swept"), ("explain", "demo"))
        words = random.choice([*one, ("logs", "demo"), ("report", "demo"), ("report", "demo", "--skip"), folder])
        return (*words, *random.choice([(), (), ("-o", "json")]))

    @contextmanager
    def at(self, folder: Path, documents: Documents) -> Iterator[None]:
        run = folder / "home" / "runs" / "demo"
        run.mkdir(parents=True)
        for name, content in documents.items():
            if name.endswith(".json"):
                (run / name).write_bytes(as_lines([content]))
            else:
                (run / name).write_bytes(as_lines(content))
        yield


class OverlayTarget(Target):
    """A values file over a good one: as a tree, or as lines of YAML."""

    texts = HOSTILE["yaml"]
    verbs: tuple[str, ...] = ("check", "check", "check", "values")

    def bases(self) -> list[str]:
        return [f"{form} {preset}" for form in ("tree", "lines") for preset in _PRESETS]

    @functools.cache  # noqa: B019
    def documents(self, base: str) -> Documents:
        form, _, preset = base.partition(" ")
        text = (presets_dir() / f"{preset}.yaml").read_text()
        if form == "lines":
            return {"lines": text.splitlines()}
        tree = yaml.safe_load(text)
        every = api.values([], [], defaults=True).tree
        every.pop("common", None)
        for key, value in every.items():  # so that every key of the chart can have a wrong type
            tree[key] = {**value, **tree.get(key, {})} if isinstance(value, dict) else tree.get(key, value)
        tree["storage"]["bucket"] = tree["storage"].get("bucket") or "some-bucket"
        tree["image"]["repository"] = tree["image"].get("repository") or "example.com/trainer"
        return {"tree": tree}

    def arguments(self, base: str, random: Random) -> tuple[str, ...]:
        verb = random.choice(self.verbs)
        return (verb, "-f", "overlay.yaml", *(random.choice([(), ("-o", "json")]) if verb != "values" else ()))

    @contextmanager
    def at(self, folder: Path, documents: Documents) -> Iterator[None]:
        (folder / "overlay.yaml").write_bytes(self.text(documents))
        yield

    def seconds(self, documents: Documents) -> float:
        """A values file is read in linear time, about 2 s for a megabyte of short words."""
        return sandbox.SECONDS + len(self.text(documents)) / 100_000

    @staticmethod
    def text(documents: Documents) -> bytes:
        if "lines" in documents:
            return as_lines(documents["lines"])
        try:
            return yaml.dump(documents["tree"], Dumper=yaml.CSafeDumper, allow_unicode=True).encode()
        except (yaml.YAMLError, UnicodeEncodeError, RecursionError):  # JSON is YAML, too
            return json.dumps(documents["tree"]).encode()


class RenderTarget(OverlayTarget):
    """The same through `render`, which runs Helm."""

    verbs = ("render",)

    def env(self) -> dict[str, str]:
        return {"SLIPWAY_HELM": str(tool("helm"))}


class HelmTarget(OverlayTarget):
    """The same through Helm alone: it ends with a sentence, and it renders what the launcher accepts."""

    verbs = ("check",)

    def bases(self) -> list[str]:
        return [base for base in super().bases() if "tutorials/" in base]  # the others have no cluster

    def faults(self, arguments: tuple[str, ...], folder: Path, documents: Documents) -> list[str]:
        checked = sandbox.call(arguments, folder)
        before = os.times()
        try:
            says = helm.template(tool("helm"), charts_dir() / "run", [folder / "overlay.yaml"])
            refused = ""
        except helm.HelmError as error:
            says = refused = str(error)
        seconds = os.times().children_user - before.children_user
        found = [f"{word!r} of Helm" for word in ("goroutine ", "panic:", "runtime error") if word in says]
        found += [f"slow: Helm took {seconds:.1f} s"] if seconds > 5 * self.seconds(documents) else []
        if checked.code == ExitCode.DONE and refused:
            found.append(f"Helm rejects what check accepts: {refused[-200:]}")
        return found
