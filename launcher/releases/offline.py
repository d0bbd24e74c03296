"""Check and render the values of a release without a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launcher.config.checks.problems import WARNING, CheckContext, Problem, error_in_file
from launcher.config.checks.rules import other_charts
from launcher.config.plan import CheckFailed
from launcher.config.values.reader import InvalidFile
from launcher.config.values.tree import Values
from launcher.helm.client import Helm, RulesBroken, load_all
from launcher.helm.render import Rendering
from launcher.releases import values as release_values
from launcher.releases.install import default_name


def check_release(
    chart: str, files: Sequence[str], sets: Sequence[str] = (), *, name: str | None = None
) -> Sequence[Problem]:
    """Return the violations of the chart's schema or, if there are none, those of its rules. Requires Helm, no cluster.

    Without a violation, returns a warning for each flavor that no quota has, and for the keys of other charts.
    """
    try:
        user, effective = release_values.load(chart, files, sets)
        render_values(chart, name, user, effective)
    except InvalidFile as error:
        return [error_in_file(error)]
    except CheckFailed as error:
        return error.problems
    return [*(_unused(user, effective) if chart == "queues" else ()), *other_charts(chart, user)]


def _unused(user: Values, effective: Values) -> Iterator[Problem]:
    tree = effective.tree
    owners = [each for section in ("clusterQueues", "cohorts") for each in tree[section].values() if each]
    used = {flavor for owner in owners for flavor in owner.get("quota") or ()}
    for name, flavor in tree["flavors"].items():
        if flavor is not None and flavor.get("create", True) and name not in used:
            message = (
                f"flavors.{name} is in no quota, so no run of these queues can use it; add it to a quota of "
                "clusterQueues, or remove it."
            )
            yield CheckContext(user, effective).problem("quota", ("flavors", name), message, WARNING)


def render_release(chart: str, files: Sequence[str], sets: Sequence[str] = (), *, name: str | None = None) -> Rendering:
    """Return the manifests that `install` would apply to a new cluster. Requires Helm, but no cluster.

    Raises CheckFailed if the values are invalid.
    """
    user, effective = release_values.load(chart, files, sets)
    return render_values(chart, name, user, effective)


def render_values(chart: str, name: str | None, user: Values, effective: Values) -> Rendering:
    """Return `render_release` of values that are loaded."""
    team = effective.tree.get("team") or {} if chart != "queues" else {}
    namespace = team.get("namespace") or team.get("name") or "default"
    try:
        text = Helm().manifest(chart, name or default_name(chart, effective.tree), namespace, user.tree)
    except RulesBroken as error:
        raise CheckFailed([release_values.of_chart(sentence, user) for sentence in error.sentences]) from error
    return Rendering(text, load_all(text))
