"""The tables of upstream's CRDs: what they keep, that they agree with the original files, and what the charts lose."""

from __future__ import annotations

import copy
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.paths import charts_dir, presets_dir
from tests import upstream
from tests.charts import schemas
from tests.charts.helm import template
from tests.charts.test_schemas import BROKEN, good, set_field
from tests.upstream import download, tables
from tests.upstream.__main__ import main as write_tables

WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com, annotations: {generator: x}}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList, shortNames: [wd]}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      deprecated: true
      deprecationWarning: Use gadgets.
      additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          description: A widget.
          type: object
          required: [spec]
          x-kubernetes-validations: [{rule: "has(self.spec)", message: A spec is necessary.}]
          properties:
            spec:
              type: object
              description: Its spec.
              properties:
                description: {type: string, maxLength: 9, description: A field with the name of a keyword.}
                size: {type: integer, format: int32, minimum: 1, default: 3}
                limits: &quantity {anyOf: [{type: integer}, {type: string}], x-kubernetes-int-or-string: true}
                requests: *quantity
                parts:
                  type: array
                  maxItems: 8
                  x-kubernetes-list-type: map
                  x-kubernetes-list-map-keys: [name]
                  items: {type: object, properties: {name: {type: string, pattern: "^a+$", description: A name.}}}
                labels: {type: object, additionalProperties: {type: string, enum: [a, b]}}
"""


def widgets() -> Any:
    return yaml.safe_load(WIDGETS)


def test_a_table_has_facts_and_no_sentences(tmp_path: Path) -> None:
    crd = tables.kept(widgets())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["description"] == {"type": "string", "maxLength": 9}
    assert spec["properties"]["size"] == {"type": "integer", "format": "int32", "minimum": 1, "default": 3}
    assert spec["properties"]["parts"]["items"]["properties"]["name"] == {"type": "string", "pattern": "^a+$"}
    assert crd["spec"]["names"] == widgets()["spec"]["names"]
    tables.write(tmp_path / "tables.json.gz", {"widget": {"1.0.0": [crd]}})
    text = gzip.decompress((tmp_path / "tables.json.gz").read_bytes()).decode()
    for left_out in ("A widget.", "Its spec.", "A name.", "has(self", "necessary", "gadgets", "jsonPath", "generator"):
        assert left_out not in text


def test_a_shared_schema_is_stored_once_and_read_back(tmp_path: Path) -> None:
    file = tmp_path / "tables.json.gz"
    crd = tables.kept(widgets())
    changed = tables.kept(yaml.safe_load(WIDGETS.replace("maxItems: 8", "maxItems: 9")))
    tables.write(file, {"widget": {"1.0.0": [crd], "1.1.0": [changed]}})
    assert tables.Tables(file).crds("widget", "1.0.0") == [crd]
    assert tables.Tables(file).crds("widget", "1.1.0") == [changed]
    text = gzip.decompress(file.read_bytes()).decode()
    assert text.count("x-kubernetes-int-or-string") == text.count('"^a+$"') == 1
    before = file.read_bytes()
    tables.write(file, {"widget": {"1.0.0": [crd], "1.1.0": [changed]}})
    assert file.read_bytes() == before


def test_an_unknown_keyword_is_an_error() -> None:
    crd = widgets()
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-new"] = 1
    with pytest.raises(ValueError, match=r"v1\.spec: unknown keyword x-new; add it to FACTS or LEFT_OUT"):
        tables.kept(crd)


def test_the_tables_agree_with_the_original_files() -> None:
    """Compare a CRD of our own with its text, and each version whose original files are here with these."""
    compared = [(tables.kept(widgets()), widgets())]
    folder = upstream.originals()
    for project, version in ((project, version) for project, found in upstream.versions().items() for version in found):
        files = sorted((folder / f"{project}-v{version}").glob("*.yaml")) if folder else []
        originals = [yaml.load(file.read_bytes(), yaml.CSafeLoader) for file in files]
        if originals:
            compared += zip(upstream.table(project, version), originals, strict=True)
    for table, original in compared:
        name = original["metadata"]["name"]
        assert table["metadata"]["name"] == name
        assert table["spec"]["scope"] == original["spec"]["scope"], name
        assert table["spec"]["names"] == original["spec"]["names"], name
        for ours, theirs in zip(table["spec"]["versions"], original["spec"]["versions"], strict=True):
            for key in ("name", "served", "storage", "subresources"):
                assert ours.get(key) == theirs.get(key), f"{name} {key}"
            same(ours["schema"]["openAPIV3Schema"], theirs["schema"]["openAPIV3Schema"], f"{name} {ours['name']}")


def same(table: dict[str, Any], original: dict[str, Any], path: str) -> None:
    """Compare two schemas keyword by keyword, independently of the code that writes the tables."""
    without = {"description", "x-kubernetes-validations"}
    assert table.keys() == original.keys() - without, path
    for key, value in original.items():
        if key == "properties":
            assert list(table[key]) == list(value), path
            for name, child in value.items():
                same(table[key][name], child, f"{path}.{name}")
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            same(table[key], value, f"{path}.{key}")
        elif key not in without:
            assert table[key] == value, f"{path} {key}"


@pytest.mark.parametrize(("kind", "path", "value", "message"), [row for row in BROKEN if "breaks a rule" in row[3]])
def test_our_rules_reject_what_upstreams_rules_reject(
    kind: str, path: str, value: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/charts/test_schemas.py does the same with the original files, if they are here."""
    monkeypatch.setenv("SLIPWAY_CRDS", "")
    obj = good(kind)
    assert schemas.validate(obj) == []
    set_field(obj, path, value)
    assert any(message in sentence for sentence in schemas.validate(obj))


@pytest.mark.parametrize("source", ["tables", "original files"])
def test_a_field_that_a_supported_version_lacks_is_reported(
    source: str, helm4: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rename each field of rendered objects in turn: every supported version reports it. Without files: the tables."""
    if source == "tables":
        monkeypatch.setenv("SLIPWAY_CRDS", "")
    for obj in rendered(helm4, tmp_path):
        assert schemas.unknown_fields(obj) == {}
        versions = schemas.versions(obj["apiVersion"].partition("/")[0])
        for path, parent, key in fields(obj, obj["kind"]):
            parent[f"{key}X"] = parent.pop(key)
            assert list(schemas.unknown_fields(obj).values()) == [versions], f"{path}X is not reported"
            parent[key] = parent.pop(f"{key}X")


FREE = {
    *("labels", "annotations", "nodeLabels", "nodeSelector", "matchLabels"),
    *("rayStartParams", "limits", "requests", "volumeAttributes"),
}
"""Maps whose keys are names."""


def fields(obj: dict[str, Any], kind: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield each field of an object's spec, with its parent; not the keys of maps whose keys are names."""

    def walk(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any], str]]:
        if isinstance(value, list):
            for number, item in enumerate(value):
                yield from walk(item, f"{path}[{number}]")
        elif isinstance(value, dict):
            for key in list(value):
                yield f"{path}.{key}", value, key
                if key not in FREE:
                    yield from walk(value[key], f"{path}.{key}")

    yield from walk(obj["spec"], f"{kind}.spec")


def rendered(helm: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield an object of each kind of upstream's that the charts render."""
    llama = presets_dir() / "tutorials" / "llama3-8b-v6e-16.yaml"
    uses = [("run", llama, ()), ("run", llama, ("--set", "run.kind=job-set")), ("ray-cluster", llama, ())]
    uses.append(("queues", presets_dir() / "queues" / "three-teams.yaml", ()))
    kinds = set()
    for chart, file, options in uses:
        for obj in schemas.objects(template(helm, charts_dir() / chart, [file], *options)):
            if obj["apiVersion"].partition("/")[0] in schemas.PROJECTS and obj.get("spec") and obj["kind"] not in kinds:
                kinds.add(obj["kind"])
                yield copy.deepcopy(obj)
    assert kinds >= {"RayJob", "JobSet", "RayCluster", "ResourceFlavor", "ClusterQueue", "LocalQueue"}


def test_the_files_to_download_are_those_of_the_tables() -> None:
    assert download.versions() == upstream.versions()
    for project, versions in upstream.versions().items():
        for version in versions:
            names = [crd["metadata"]["name"].partition(".") for crd in upstream.table(project, version)]
            assert download.files(project, version) == sorted(f"{group}_{plural}.yaml" for plural, _, group in names)


def test_original_files_that_make_upstream_downloaded_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_CRDS", raising=False)
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    monkeypatch.setattr(upstream, "CHECKOUT", tmp_path / "a" / "checkout")
    assert upstream.originals() is None
    folder = download.folder() / "jobset-v0.12.0"
    folder.mkdir(parents=True)
    (folder / "widgets.yaml").write_text(WIDGETS)
    assert upstream.originals() == download.folder()


def test_the_folder_of_original_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobset-v0.12.0").mkdir()
    file = tmp_path / "jobset-v0.12.0" / "widgets.yaml"
    monkeypatch.setenv("SLIPWAY_CRDS", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no file matches .*/PROJECT-vVERSION/\*\.yaml\. Set SLIPWAY_CRDS to"):
        upstream.originals()
    file.write_text(WIDGETS)
    assert upstream.originals() == tmp_path
    (crd,) = upstream.crds("jobset", "0.12.0")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["x-kubernetes-validations"] == [{"rule": "has(self.spec)", "message": "A spec is necessary."}]
    assert "description" not in schema
    # A version that the folder does not have comes from the tables.
    assert upstream.crd("jobset", "0.11.1", "JobSet")["spec"]["group"] == "jobset.x-k8s.io"
    with pytest.raises(KeyError, match=r"jobset 0\.9\.0"):
        upstream.crds("jobset", "0.9.0")


def test_the_file_of_tables_is_written_from_the_original_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "FILE", tmp_path / "tables.json.gz")
    monkeypatch.setenv("SLIPWAY_CRDS", "")
    with pytest.raises(SystemExit, match=r"The original CRDs are missing\. Run make upstream, or set SLIPWAY_CRDS"):
        write_tables()
    monkeypatch.setenv("SLIPWAY_CRDS", str(tmp_path))
    for folder in ("jobset-v0.9.0", "jobset-v0.10.0", "kuberay-v1.0.0", "kueue-v0.1.0"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "widgets.yaml").write_text(WIDGETS)
    write_tables()
    written = tables.Tables(tmp_path / "tables.json.gz")
    assert written.versions() == {"jobset": ["0.9.0", "0.10.0"], "kuberay": ["1.0.0"], "kueue": ["0.1.0"]}
    assert written.crds("jobset", "0.9.0") == [tables.kept(widgets())]
    assert "4 versions" in capsys.readouterr().err
