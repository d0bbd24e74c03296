"""common.quantity returns the canonical form. tests/cluster/test_quantities.py compares it with a real API server."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.charts import docs
from tests.charts.helm import dump_chart, dumped, template
from tests.charts.quantities import AMOUNTS, FORMS, KEPT
from tests.tools.go_tools import tool

LIBRARY = docs.CHECKOUT / "charts" / "common" / "templates" / "_quantity.tpl"
TEMPLATE = """\
{{- $found := list }}
{{- range .Values.amounts }}{{ $found = append $found (include "common.quantity" .) }}{{ end }}
json: {{ dict "found" $found | toJson | b64enc }}
"""


def rendered(helm: Path, amounts: list[str | float], folder: Path) -> list[str]:
    """Return what common.quantity returns for each amount."""
    chart = dump_chart(folder / "chart", json.dumps({"amounts": amounts}))
    shutil.copy(LIBRARY, chart / "templates")
    (chart / "templates" / "values.yaml").write_text(TEMPLATE)
    found: list[str] = dumped(template(helm, chart))["found"]
    return found


def test_amounts_become_canonical(helm: Path, tmp_path: Path) -> None:
    amounts = [*AMOUNTS, *KEPT]
    found = rendered(helm, [given for given, _ in amounts], tmp_path)
    assert dict(zip((given for given, _ in amounts), found, strict=True)) == dict(amounts)


def test_a_canonical_amount_is_not_changed(helm: Path, tmp_path: Path) -> None:
    canonical: list[str | float] = [text for _, text in [*AMOUNTS, *KEPT]]
    assert rendered(helm, canonical, tmp_path) == canonical


def test_what_is_not_an_amount_is_left_to_the_rules(helm: Path, tmp_path: Path) -> None:
    given: list[str | float] = ["", "lots", "-1", "1 Gi", "1.2.3", "1e", "1234567890123456789Gi", "9000000.1234Ti"]
    assert rendered(helm, given, tmp_path) == given


def test_the_forms_of_a_quantity_are_those_that_kubectl_accepts() -> None:
    """kubectl parses the limits of a quota as the API server does: with k8s.io/apimachinery."""

    def accepts(text: str) -> bool:
        quota = ["create", "quota", "amounts", f"--hard=example.com/amount={text}", "--dry-run=client"]
        return subprocess.run([tool("kubectl"), *quota], capture_output=True, check=False).returncode == 0

    assert {text: accepts(text) for text in FORMS} == FORMS
