"""The page of what the admission policy for runs accepts, from its table and the defaults of charts/queues."""

from __future__ import annotations

import re
from typing import Any

import yaml

from launcher.paths import charts_dir
from tests.docs.reference.parts import code, page, table

_ABOUT = """\
The admission policy of [charts/queues](../../charts/queues/README.md#admission-policies) (`policies.runs`) accepts
these fields in the RayJobs, JobSets, RayClusters and RayServices of a team's members, and refuses all others. They are
what the charts render, and what the API server and the webhooks of Kueue and JobSet add. `policies.fields` adds fields
to a shape, such as `policies.fields: {pod: [hostAliases]}`; their values are not checked. Numbers are the defaults of
`policies.bounds`. Labels, the service account, priorities, owners and `suspend` have rules of their own, which the
page of the chart lists."""


def text() -> str:
    chart = charts_dir() / "queues"
    shapes: dict[str, Any] = yaml.safe_load((chart / "run-policy.yaml").read_text())["shapes"]
    policies = yaml.safe_load((chart / "values.yaml").read_text())["policies"]
    parts = [" ".join(_ABOUT.split("\n"))]
    for name, shape in shapes.items():
        rows = [
            (code(field), _value(row, policies), row["why"], f"`{row['key']}`" if "key" in row else "")
            for field, row in shape["fields"].items()
        ]
        parts += [f"## {name}", f"{shape['about'][0].upper()}{shape['about'][1:]}."]
        parts.append(table(("field", "the value", "why it is accepted", "key in charts/queues"), rows))
        if refused := shape.get("refused"):
            reasons = [(code(field), why[0].upper() + why[1:]) for field, why in refused.items()]
            parts.append(table(("refused", "reason"), reasons))
    return page("Run policy", "charts/queues/run-policy.yaml", *parts)


def _value(row: dict[str, Any], policies: dict[str, Any]) -> str:
    words = []
    if "message" in row:
        message = re.sub(r" Allowed: <<.*", "", _filled(row["message"], policies))
        words.append(f"other keys {message}" if row.get("entries") else message)
    below = row.get("shape") or row.get("is") or row.get("items")
    if below:
        most = f", at most {row['most']}" if "most" in row else ""
        words.append(f"{'list of ' if 'items' in row else ''}[{below}](#{below.lower()}){most}")
    if row.get("required"):
        words.append("required")
    return "; ".join(words).rstrip(".:")


def _filled(message: str, policies: dict[str, Any]) -> str:
    for key, bound in policies["bounds"].items():
        message = message.replace(f"<<bounds.{key}>>", str(bound))
    return message.replace("<<csiDrivers.text>>", "`policies.csiDrivers`")
