"""`make docs`: helm-docs writes each chart's README.md from its values.yaml, Chart.yaml and README.md.gotmpl."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from tests.tools import tool

CHECKOUT = Path(__file__).parents[2]


def parents(charts: Path) -> list[Path]:
    """Return the charts that can be installed: all except the libraries."""
    found = sorted(file.parent for file in charts.glob("*/Chart.yaml"))
    return [chart for chart in found if yaml.safe_load((chart / "Chart.yaml").read_text()).get("type") != "library"]


def write(charts: Path) -> None:
    """Write README.md of every chart in the folder `charts` that has a README.md.gotmpl. Raises RuntimeError."""
    for chart in parents(charts):
        if (chart / "README.md.gotmpl").exists():
            command = [str(tool("helm-docs")), f"--chart-search-root={chart}", f"--chart-to-generate={chart}"]
            command += ["--sort-values-order=file"]
            command += [f"--template-files={charts / '_readme.gotmpl'}", "--template-files=README.md.gotmpl"]
            done = subprocess.run([*command, "--log-level=warning"], capture_output=True, text=True, check=False)
            if done.returncode != 0 or done.stderr:
                raise RuntimeError(f"helm-docs of {chart.name} failed:\n{done.stderr.strip()}")


if __name__ == "__main__":
    try:
        write(CHECKOUT / "charts")
    except RuntimeError as error:
        sys.exit(str(error))
