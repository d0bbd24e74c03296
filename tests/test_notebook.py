"""The notebook in docs/examples, run as in Jupyter, with a real kernel and real training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from launcher import api
from launcher.backends.base import State
from tests import compiled_programs
from tests.coverage_by_package import MEASURED

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "examples" / "sweep.ipynb"


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]  # its types lack this one


def test_the_notebook_is_stored_without_outputs() -> None:
    nbformat.validate(read())
    for cell in read().cells:
        if cell.cell_type == "code":
            assert cell.outputs == [], cell.source
            assert cell.execution_count is None


def test_the_notebook_trains_and_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(MEASURED, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    notebook = read()
    try:
        with compiled_programs.kept(tmp_path / "home" / "runs"):
            nbclient.NotebookClient(notebook, timeout=540, resources={"metadata": {"path": str(tmp_path)}}).execute()
    finally:
        for status in api.list_runs():  # if a cell fails, its runs are still running
            api.cancel(status.name)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    printed = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    assert "notebook-1 {'train.learning_rate': 0.001}" in printed
    assert 'The sweep "notebook" was submitted: 2 runs on this machine.' in printed
    assert "2 succeeded" in printed
    (table,) = [output.data["text/markdown"] for output in outputs if "text/markdown" in output.get("data", {})]
    assert len(table.splitlines()) == 4
    assert any("image/png" in output.get("data", {}) for output in outputs), "there is no plot"

    sweep = api.sweep("notebook")
    assert [run.state for run in sweep.runs] == [State.SUCCEEDED] * 2
    assert sweep.best is not None
    for run in sweep.runs:
        metrics = api.metrics(run.name)
        assert [entry["step"] for entry in metrics if "loss" in entry] == list(range(16))
        assert [entry["step"] for entry in metrics if "eval_loss" in entry][-1] == 16
        assert run.loss is not None
        assert run.loss_first is not None
        assert run.loss < run.loss_first
