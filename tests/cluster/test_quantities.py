"""The charts render every quantity as the API server stores it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.charts import docs, schemas
from tests.charts.helm import template
from tests.charts.quantities import AMOUNTS, KEPT, quantities
from tests.cluster.api import Api

CHARTS = docs.CHECKOUT / "charts"
FILES = [(file.parents[1].name, file) for chart in docs.parents(CHARTS) for file in sorted(chart.glob("ci/*.yaml"))]
FILES += [("queues", file) for file in sorted((docs.CHECKOUT / "values" / "queues").glob("*.yaml"))]
OTHER_FORMS = ("--set=worker.cpu=1000m,worker.memory=1024Mi,head.memory=0.5Ti", "--set-string=head.cpu=0.5")


def stored(api: Api, namespace: str, amounts: Iterable[Any]) -> list[str]:
    """Return the form in which the API server stores each amount, from a dry run of a ResourceQuota."""
    hard = {f"kubernetes.io/amount-{number}": amount for number, amount in enumerate(amounts)}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "amounts"}, "spec": {"hard": hard}}
    answer = api.request("POST", f"/api/v1/namespaces/{namespace}/resourcequotas?dryRun=All", quota)
    return [answer["spec"]["hard"][key] for key in hard]


def test_the_table_of_amounts_is_that_of_the_api_server(api: Api, namespace: str) -> None:
    assert stored(api, namespace, [given for given, _ in AMOUNTS]) == [canonical for _, canonical in AMOUNTS]
    canonical = [canonical for _, canonical in [*AMOUNTS, *KEPT]]
    assert stored(api, namespace, canonical) == canonical


def test_no_stored_object_differs_from_the_rendered_one_in_a_quantity(helm4: Path, api: Api, namespace: str) -> None:
    found: dict[str, Any] = {}
    for chart, file in FILES:
        for obj in schemas.objects(template(helm4, CHARTS / chart, [file], *OTHER_FORMS * (chart != "queues"))):
            name = f"{chart} {file.stem} {obj['kind']} {obj['metadata']['name']}"
            found |= {f"{name}: {path}": value for path, value in quantities(obj)}
    assert len(found) > 100
    assert dict(zip(found, stored(api, namespace, found.values()), strict=True)) == found
