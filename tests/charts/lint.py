"""`python -m tests.charts.lint`: what `ct lint` checks, without ct, and a little more.

For every chart: Chart.yaml by chart_schema.yaml (Yamale), Chart.yaml and values files by lintconf.yaml (yamllint),
`helm lint --strict` and `helm template` with every ci/*-values.yaml by both Helms, and a higher version than at the
base when a file of the chart has changed. A file that a chart has by a link counts for it, so a change to the library
counts for every chart. Prints one line a chart; faults are sentences on stderr, and the exit code is 1.
"""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.charts.helm import KUBE_VERSION, HelmError, template
from tests.tools import tool

CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Report:
    """What was found in one chart: a line for people, and its faults, each a sentence."""

    line: str
    faults: list[str]


def main() -> int:
    reports = check(CHECKOUT)
    for report in reports:
        print(report.line)
        for fault in report.faults:
            print(f"  {fault}", file=sys.stderr)
    return 1 if any(report.faults for report in reports) else 0


def check(root: Path, *, helms: tuple[str, ...] = ("helm", "helm3")) -> list[Report]:
    """A report for every chart that ct.yaml in `root` names, the excluded ones (libraries) first."""
    config = yaml.safe_load((root / "ct.yaml").read_text())
    charts = sorted(
        (file.parent for folder in config["chart-dirs"] for file in (root / folder).glob("*/Chart.yaml")),
        key=lambda chart: (chart.name not in config["excluded-charts"], chart.name),
    )
    base = _base(root, config)
    return [_report(root, config, chart, base, helms) for chart in charts]


def _report(root: Path, config: dict[str, Any], chart: Path, base: _Base, helms: tuple[str, ...]) -> Report:
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    library = chart.name in config["excluded-charts"]
    given = sorted((chart / "ci").glob("*.yaml")) if (chart / "ci").is_dir() else []
    faults = [
        *_schema(root, config, chart / "Chart.yaml"),
        *(said for file in (chart / "Chart.yaml", chart / "values.yaml", *given) for said in _yaml(root, config, file)),
        *_names(root, given),
    ]
    if not library:
        faults += [said for helm in helms for said in _helm(tool(helm), root, chart, given)]
    bump, note = _version(root, chart, about, base)
    faults += bump
    state = "fine" if not faults else f"{len(faults)} fault{'s' if len(faults) > 1 else ''}"
    files = "a library" if library else f"{len(given)} ci values file{'' if len(given) == 1 else 's'}"
    return Report(f"{chart.relative_to(root)} {about.get('version')}: {state} ({files}; {note})", faults)


def _schema(root: Path, config: dict[str, Any], file: Path) -> Iterator[str]:
    import yamale

    schema = yamale.make_schema(str(root / config["chart-yaml-schema"]))
    for result in yamale.validate(schema, yamale.make_data(str(file)), _raise_error=False):
        for error in result.errors:
            yield f"{file.relative_to(root)}: {str(error).rstrip('.')}."


def _yaml(root: Path, config: dict[str, Any], file: Path) -> Iterator[str]:
    from yamllint import linter
    from yamllint.config import YamlLintConfig

    rules = YamlLintConfig(file=str(root / config["lint-conf"]))
    if not file.exists():
        yield f"{file.relative_to(root)} is missing."
        return
    for problem in linter.run(file.read_text(), rules, str(file)):
        yield f"{file.relative_to(root)}:{problem.line}: {problem.desc} ({problem.rule or 'syntax'})."


def _names(root: Path, given: list[Path]) -> Iterator[str]:
    for file in given:
        if not fnmatch.fnmatch(file.name, "*-values.yaml"):
            yield f"{file.relative_to(root)} is not seen by ct; call it {file.stem}-values.yaml."


def _helm(helm: Path, root: Path, chart: Path, given: list[Path]) -> Iterator[str]:
    for file in given or (None,):
        values = [file] if file else []
        command = [str(helm), "lint", "--strict", "--quiet", "--kube-version", KUBE_VERSION, str(chart)]
        done = subprocess.run([*command, *(f"-f={one}" for one in values)], capture_output=True, text=True, check=False)
        what = f"{chart.relative_to(root)} with {file.relative_to(root) if file else 'its defaults'}"
        if done.returncode != 0:
            said = [line for line in done.stdout.splitlines() if line.startswith(("[ERROR]", "[WARNING]"))]
            yield f"helm lint of {what}: {'; '.join(said) or done.stderr.strip()}"
        if file:
            # `helm lint` passes over `fail`, and so over every rule across keys.
            try:
                template(helm, chart, values)
            except HelmError as error:
                yield f"helm template of {what}: {error}"


@dataclass(frozen=True)
class _Base:
    """The commit that versions are compared with; without one, `note` says why."""

    commit: str
    note: str


def _base(root: Path, config: dict[str, Any]) -> _Base:
    branch = f"{config['remote']}/{config['target-branch']}"
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return _Base("", "no git history to compare with")
    found = _git(root, "merge-base", branch, "HEAD")
    if found and (found != head or _git(root, "status", "--porcelain")):
        return _Base(found, f"compared with {branch}")
    # On the branch itself, what counts is what people have: the last release.
    if tag := _git(root, "describe", "--tags", "--abbrev=0"):
        return _Base(tag, f"compared with {tag}")
    return _Base("", f"no {branch} and no release to compare with" if not found else "no release to compare with")


def _version(root: Path, chart: Path, about: dict[str, Any], base: _Base) -> tuple[list[str], str]:
    if not base.commit:
        return [], base.note
    path = chart.relative_to(root) / "Chart.yaml"
    before = _git(root, "show", f"{base.commit}:{path}")
    if before is None:
        return [], "new"
    changed = _changed(root, chart, base.commit)
    old, new = (str(chart.get("version")) for chart in (yaml.safe_load(before), about))
    if not changed or _order(new) > _order(old):
        return [], base.note
    others = f" and {len(changed) - 1} other files" if len(changed) > 1 else ""
    says = f"{path}: {changed[0]}{others} changed since {old}; version {new} must be higher."
    return [says], base.note


def _changed(root: Path, chart: Path, base: str) -> list[str]:
    """Files of the chart, by links too, that are not as they were at `base`."""
    linked = {entry.resolve() for entry in chart.rglob("*") if entry.is_symlink()}
    paths = [str(path.relative_to(root.resolve())) for path in sorted({chart.resolve(), *linked})]
    tracked = _git(root, "diff", "--name-only", base, "--", *paths) or ""
    untracked = _git(root, "ls-files", "--others", "--exclude-standard", "--", *paths) or ""
    return sorted({*tracked.splitlines(), *untracked.splitlines()})


def _order(version: str) -> tuple[list[int], bool, str]:
    """Versions in their order; 1.0.0-rc.1 is before 1.0.0."""
    numbers, _, pre = version.partition("-")
    return [int(part) for part in re.findall(r"\d+", numbers)], not pre, pre


def _git(root: Path, *arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
