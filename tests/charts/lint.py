"""`python -m tests.charts.lint`: check what `ct lint` checks, and a little more, without ct.

For every chart it checks:

- Chart.yaml against chart_schema.yaml (Yamale), Chart.yaml and the values files against lintconf.yaml (yamllint);
- `helm lint --strict` and `helm template` with every ci/*-values.yaml, with both Helms;
- that the version is higher than at the base commit if a file of the chart has changed.

It also checks that the copies in the charts are up to date (copies.py). Prints one line for each chart. Faults are
sentences on stderr, and the exit code is then 1.
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

from tests.charts import copies
from tests.charts.helm import KUBE_VERSION, HelmError, template
from tests.tools import tool

CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Report:
    """The result for one chart: a line for people, and its faults, each a sentence."""

    line: str
    faults: list[str]


def main() -> int:
    outdated = copies.faults(CHECKOUT / "charts")
    for fault in outdated:
        print(fault, file=sys.stderr)
    reports = check(CHECKOUT)
    for report in reports:
        print(report.line)
        for fault in report.faults:
            print(f"  {fault}", file=sys.stderr)
    return 1 if outdated or any(report.faults for report in reports) else 0


def check(root: Path, *, helms: tuple[str, ...] = ("helm", "helm3")) -> list[Report]:
    """Return a report for every chart in the folders of ct.yaml in `root`, the excluded ones (libraries) first."""
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
    values_files = sorted((chart / "ci").glob("*.yaml")) if (chart / "ci").is_dir() else []
    faults = [
        *_schema(root, config, chart / "Chart.yaml"),
        *(
            message
            for file in (chart / "Chart.yaml", chart / "values.yaml", *values_files)
            for message in _yaml(root, config, file)
        ),
        *_names(root, values_files),
    ]
    if not library:
        faults += [message for helm in helms for message in _helm(tool(helm), root, chart, values_files)]
    bump, note = _version(root, chart, about, base)
    faults += bump
    state = "fine" if not faults else f"{len(faults)} fault{'s' if len(faults) > 1 else ''}"
    files = "a library" if library else f"{len(values_files)} ci values file{'' if len(values_files) == 1 else 's'}"
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


def _names(root: Path, values_files: list[Path]) -> Iterator[str]:
    for file in values_files:
        if not fnmatch.fnmatch(file.name, "*-values.yaml"):
            yield f"{file.relative_to(root)} is not seen by ct; call it {file.stem}-values.yaml."


def _helm(helm: Path, root: Path, chart: Path, values_files: list[Path]) -> Iterator[str]:
    for file in values_files or (None,):
        values = [file] if file else []
        command = [str(helm), "lint", "--strict", "--quiet", "--kube-version", KUBE_VERSION, str(chart)]
        done = subprocess.run([*command, *(f"-f={one}" for one in values)], capture_output=True, text=True, check=False)
        what = f"{chart.relative_to(root)} with {file.relative_to(root) if file else 'its defaults'}"
        if done.returncode != 0:
            messages = [line for line in done.stdout.splitlines() if line.startswith(("[ERROR]", "[WARNING]"))]
            yield f"helm lint of {what}: {'; '.join(messages) or done.stderr.strip()}"
        if file:
            # `helm lint` ignores `fail`, which is how the charts report every rule across keys.
            try:
                template(helm, chart, values)
            except HelmError as error:
                yield f"helm template of {what}: {error}"


@dataclass(frozen=True)
class _Base:
    """The commit that versions are compared with. If it is "", `note` gives the reason."""

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
    # On the branch itself, users have the last release, so that is the base.
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
    message = f"{path}: {changed[0]}{others} changed since {old}; version {new} must be higher."
    return [message], base.note


def _changed(root: Path, chart: Path, base: str) -> list[str]:
    """Return the files of the chart that have changed since `base`."""
    path = str(chart.relative_to(root))
    tracked = _git(root, "diff", "--name-only", base, "--", path) or ""
    untracked = _git(root, "ls-files", "--others", "--exclude-standard", "--", path) or ""
    return sorted({*tracked.splitlines(), *untracked.splitlines()})


def _order(version: str) -> tuple[list[int], bool, str]:
    """Return a sort key for versions; 1.0.0-rc.1 is before 1.0.0."""
    numbers, _, pre = version.partition("-")
    return [int(part) for part in re.findall(r"\d+", numbers)], not pre, pre


def _git(root: Path, *arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
