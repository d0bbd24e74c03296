"""Check and render the values of a release without a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.config.checks.problems import Problem, error_in_file
from launcher.config.plan import CheckFailed
from launcher.config.values.reader import InvalidFile
from launcher.config.values.tree import Values
from launcher.helm.client import Helm, RulesBroken, load_all
from launcher.helm.render import Rendering
from launcher.releases import values as release_values
from launcher.releases.install import default_name


def check(chart: str, name: str | None, files: Sequence[str], sets: Sequence[str]) -> list[Problem]:
    """Return the violations of the chart's schema or, if there are none, those of its rules, which Helm evaluates."""
    try:
        render(chart, name, files, sets)
    except InvalidFile as error:
        return [error_in_file(error)]
    except CheckFailed as error:
        return error.problems
    return []


def render(chart: str, name: str | None, files: Sequence[str], sets: Sequence[str]) -> Rendering:
    """Return the manifests of a release in a new cluster. Raises CheckFailed if the values are invalid."""
    user, effective = release_values.load(chart, files, sets)
    return render_values(chart, name, user, effective)


def render_values(chart: str, name: str | None, user: Values, effective: Values) -> Rendering:
    """Return `render` of values that are loaded."""
    team = effective.tree.get("team") or {} if chart != "queues" else {}
    namespace = team.get("namespace") or team.get("name") or "default"
    try:
        text = Helm().manifest(chart, name or default_name(chart, effective.tree), namespace, user.tree)
    except RulesBroken as error:
        raise CheckFailed([release_values.of_chart(sentence, user) for sentence in error.sentences]) from error
    return Rendering(text, load_all(text))
