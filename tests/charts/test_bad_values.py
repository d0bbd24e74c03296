"""Helm 3, Helm 4 and the launcher reject invalid values with a sentence that names the key, and accept valid ones."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.config import plan
from launcher.config.checks import rules as checks
from launcher.config.checks import schema
from launcher.config.values import files as values
from launcher.config.values.tree import Values
from launcher.paths import charts_dir
from launcher.releases import values as release_values
from tests.charts.bad_values import (
    ADDS,
    ALL,
    ALTERNATIVE,
    BAD,
    BAD_WITHOUT_CHART,
    CLUSTER,
    GOOD,
    GOOD_VALUES,
    JOB_SET,
    KINDS,
    NEAREST,
    ONLY_LAUNCHER,
    RUN,
    SERVE,
    InvalidValues,
)
from tests.charts.helm import KUBE_VERSION, run
from tests.charts.schemas import objects, validate
from tests.large_machine import use_machine
from tests.tools import tool

DEFAULTS = values.chart_defaults("run")
TRACE = re.compile(
    r"nil pointer|error calling|wrong type for value|can't evaluate field|map has no entry|<no value>|<nil>|%!"
    r"|YAML parse error|unable to build|executing \"|runtime error|interface conversion|cannot unmarshal|template: "
)
"""Text that a message for users never contains."""

Done = tuple[bool, str]
"""Whether Helm rendered, and what it printed."""


class HelmRenderer:
    """Renders values, each of them once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: dict[tuple[str, str, str, str], Done] = {}

    def render(self, helm: str, kind: str, text: str, release: str = "t") -> Done:
        """Render `text` over GOOD, for a run, a long-lived Ray cluster or a served model."""
        key = (helm, kind, text, release)
        if key not in self.done:
            file = self.folder / f"{abs(hash(key)):x}.yaml"
            file.write_text(text, encoding="utf-8")
            chart = charts_dir() / {CLUSTER: "ray-cluster", SERVE: "serve"}.get(kind, "run")
            command = ["template", release, str(chart), "--kube-version", KUBE_VERSION]
            for path in (self.folder / "good.yaml", self.folder / f"{kind}.yaml", file):
                command += ["-f", str(path)]
            self.done[key] = run(tool(helm), command)
            file.unlink()
        return self.done[key]


@pytest.fixture(scope="session")
def helm_renderer(tmp_path_factory: pytest.TempPathFactory) -> HelmRenderer:
    folder = tmp_path_factory.mktemp("helm_renderer")
    (folder / "good.yaml").write_text(GOOD)
    for kind in (*ALL, SERVE):
        (folder / f"{kind}.yaml").write_text(KINDS[kind])
    return HelmRenderer(folder)


@pytest.fixture(scope="session")
def table(helm_renderer: HelmRenderer) -> HelmRenderer:
    """Render the table: each row by Helm 4 for one of its kinds in turn, and a ninth of the rows by Helm 3 too."""
    orders = orders_of(FIRST)
    good = [(text, [kind for kind in kinds if kind in ALL]) for text, kinds in GOOD_VALUES.values()]
    orders += [("helm", kind, text, "t") for text, kinds in good for kind in kinds]
    orders += [("helm3", kinds[-1], text, "t") for text, kinds in good if kinds]
    return render_all(helm_renderer, orders)


@pytest.fixture(scope="session")
def whole_table(table: HelmRenderer) -> HelmRenderer:
    return render_all(table, orders_of(BAD))


def orders_of(rows: Container[InvalidValues]) -> list[tuple[str, str, str, str]]:
    orders = []
    for at, bad in enumerate(BAD):
        kind = bad.kinds[at % len(bad.kinds)]
        if bad in rows:
            helms = ("helm", "helm3") if at % 9 == 0 else ("helm",)
            orders += [(helm, kind, bad.values, bad.release) for helm in helms]
    return orders


def render_all(renderer: HelmRenderer, orders: Iterable[tuple[str, str, str, str]]) -> HelmRenderer:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda order: renderer.render(*order), orders))
    return renderer


def sentences(printed: str) -> dict[str, str]:
    """Return the message of Helm's schema error for each key."""
    found: dict[str, str] = {}
    chart = ""
    for line in printed.splitlines():
        if re.fullmatch(r"[a-z-]+:", line):
            chart = "common." if line == "common:" else ""
        # - at '/slice/count': minimum: got 0, want 1
        at = re.match(r"\s*- at '(?P<pointer>[^']*)': (?P<says>.*)", line)
        if at is None or re.search(" failed$|^value must be '", at["says"]):
            continue  # a headline, or a sentence of a rule: see ruled
        path = [part.replace("~1", "/").replace("~0", "~") for part in at["pointer"].split("/")[1:]]
        names = re.match(r"(missing propert|additional properties )(.*)", at["says"])
        for name in re.findall(r"'([^']*)'", names[2]) if names else [None]:
            found[chart + ".".join([*path, name] if name is not None else path)] = at["says"]
    return found


def ruled(printed: str) -> list[str]:
    """Return the sentences of the charts' rules in Helm's error: of the schema, or else of the templates."""
    _, _, after = printed.partition("execution error at (")
    quoted = re.findall(r"^ *- at '[^']*': value must be '(.*)'$", printed, re.MULTILINE)
    return [
        *(re.sub(r"\\(['\\])", r"\1", sentence) for sentence in quoted),
        *(line for line in after.splitlines()[1:] if line and not line.startswith("Use --debug")),
    ]


def same(rule: str, sentence: str) -> bool:
    """Return whether Helm's sentence, with placeholders such as <value>, is the launcher's."""
    return bool(re.fullmatch(re.sub(r"<[\w.\\]+>", ".*", re.escape(rule)), sentence, re.DOTALL))


def launchers(bad: InvalidValues, kind: str) -> list[str]:
    """Return the sentences of the launcher about values of a run, or of a release."""
    if kind in (RUN, JOB_SET):
        return [sentence for _, sentence in problems_of(user(bad.values, kind))]
    chart = CHART_OF[kind]
    values_ = user(bad.values, kind)
    effective = release_values.effective_of(chart, values_)
    return [problem.message for problem in release_values.broken_rules(chart, values_, effective)]


def user(text: str, kind: str = RUN) -> Values:
    """Return `text` over GOOD, as the launcher reads them."""
    layers = [GOOD, KINDS[kind], text]
    read = [values.read_text(layer.encode(), f"{number}.yaml") for number, layer in enumerate(layers)]
    return functools.reduce(values.merge, read)


def problems_of(user: Values) -> list[tuple[str, str]]:
    """Return the launcher's errors: the key, and the sentence that the user reads, without file and line."""
    found = [problem for problem in plan.check_launch(user, DEFAULTS) if problem.severity == checks.ERROR]
    return [(p.key, p.message if p.key in p.message else f"{p.key}: {p.message}") for p in found]


def ids(bad: InvalidValues) -> str:
    return f"{bad.key} {bad.values[:40]}"


def test_no_row_is_duplicate() -> None:
    rows = [*BAD, *BAD_WITHOUT_CHART]
    assert len({(bad.values, bad.kinds, bad.release) for bad in rows}) == len(rows)


CHART_OF = {RUN: "run", JOB_SET: "run", CLUSTER: "ray-cluster", SERVE: "serve"}


def is_of_others(kind: str, key: str) -> bool:
    """Return whether the key is one of other charts, which the chart of this kind ignores."""
    parts = key.split(".")
    return any("x-charts" in node_at(CHART_OF[kind], parts[: length + 1]) for length in range(len(parts)))


def node_at(chart: str, path: Sequence[str]) -> dict[str, Any]:
    node = checks.schema(chart)
    for key in path:
        node = node.get("properties", {}).get(key, {})
    return node


FIRST = list({bad.key: bad for bad in reversed(BAD)}.values())
"""The first row of each key."""


@pytest.mark.parametrize("bad", FIRST, ids=ids)
def test_helm_rejects_it_with_one_sentence_that_names_the_key(table: HelmRenderer, bad: InvalidValues) -> None:
    helm_rejects(table, bad)


@pytest.mark.parametrize("bad", [bad for bad in BAD if bad not in FIRST], ids=ids)
def test_helm_rejects_other_values_of_the_key(whole_table: HelmRenderer, bad: InvalidValues) -> None:
    helm_rejects(whole_table, bad)
    for kind in bad.kinds:
        if kind not in (CLUSTER, SERVE):
            launcher_rejects(bad, kind, whole_table)


def helm_rejects(table: HelmRenderer, bad: InvalidValues) -> None:
    renders = [(helm, kind, bad.values, bad.release) for helm in ("helm", "helm3") for kind in bad.kinds]
    assert not all(is_of_others(kind, bad.key) for kind in bad.kinds)
    for render in (render for render in renders if render in table.done):
        rendered, printed = table.done[render]
        if rendered and is_of_others(render[1], bad.key):
            continue
        assert not rendered
        # A list of accepted values of an entry ends with null, which removes the entry; Helm prints it as <nil>.
        assert not TRACE.search(printed.replace("', <nil>", "'")), printed
        if rules := ruled(printed):
            if "execution error at (" not in printed:
                ours = launchers(bad, render[1])
                assert all(any(same(rule, sentence) for sentence in ours) for rule in rules), printed
                rules = [re.sub(r'(?<=[.])"([\w./-]+)"', r"\1", sentence) for sentence in ours]  # keys with dots
            assert len(rules) == 1
            assert re.match(rf"(.*[ :])?{re.escape(bad.key)}[ :]", rules[0])
            assert bad.says in rules[0]
        else:
            found = sentences(printed)
            assert any(key == bad.key or key.startswith(f"{bad.key}.") for key in found), printed
            (says,) = set(found.values())
            assert bad.says in says


@pytest.mark.parametrize(
    ("bad", "kind"),
    [(bad, kind) for bad in BAD for kind in bad.kinds if kind not in (CLUSTER, SERVE)],
    ids=lambda value: value if isinstance(value, str) else ids(value),
)
def test_the_launcher_rejects_it_in_the_same_words(table: HelmRenderer, bad: InvalidValues, kind: str) -> None:
    """The words of Helm for a row that is not in FIRST are compared by test_helm_rejects_other_values_of_the_key."""
    launcher_rejects(bad, kind, table)


def launcher_rejects(bad: InvalidValues, kind: str, table: HelmRenderer) -> None:
    problems = problems_of(user(bad.values, kind))
    if bad.key.startswith("the release's name"):
        assert [key for key, _ in problems] == ["run.name"]  # the launcher has no release and requires a name
        return
    assert {key if key == bad.key else key[: len(bad.key) + 1] for key, _ in problems} <= {bad.key, f"{bad.key}."}
    ((_, sentence),) = problems
    rules = ruled(table.done.get(("helm", kind, bad.values, bad.release), (False, ""))[1])
    if rules and not bad.launcher:
        assert all(same(rule, sentence) or same(rule, f"{bad.key}: {sentence}") for rule in rules)
    elif rules and bad.launcher == ADDS:
        assert sentence.startswith(rules[0])
    elif rules and bad.launcher == ALTERNATIVE:
        assert sentence == f"slice.any, alternative 2: {rules[0]}"
    elif rules:
        assert bad.launcher == NEAREST
        start = rules[0].partition(";")[0]
        assert sentence.startswith(start) or f"{bad.key}: {sentence}".startswith(start)


@pytest.mark.parametrize(
    ("bad", "kind"),
    [(bad, kind) for bad in BAD_WITHOUT_CHART for kind in bad.kinds],
    ids=lambda value: value if isinstance(value, str) else ids(value),
)
def test_the_launcher_rejects_runs_that_no_chart_renders(
    bad: InvalidValues, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_machine(monkeypatch)
    ((key, sentence),) = problems_of(user(bad.values, kind))
    assert key == bad.key
    assert bad.says in sentence


@pytest.mark.parametrize("name", GOOD_VALUES)
def test_both_accept_values_at_the_limits(table: HelmRenderer, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_machine(monkeypatch)
    text, kinds = GOOD_VALUES[name]
    assert kinds[-1] not in ALL or table.done["helm3", kinds[-1], text, "t"][0]
    for kind in kinds:
        assert kind == CLUSTER or problems_of(user(text, kind)) == []
        if kind not in ALL:
            continue
        rendered, printed = table.done["helm", kind, text, "t"]
        assert rendered, printed
        (obj,) = objects(printed)
        assert validate(obj) == []


@pytest.mark.parametrize("text", ONLY_LAUNCHER)
def test_helm_accepts_what_only_the_launcher_checks(helm_renderer: HelmRenderer, text: str) -> None:
    assert problems_of(user(text)) != []
    rendered, printed = helm_renderer.render("helm", RUN, text)
    assert rendered, printed


# --- Many mistakes at once ------------------------------------------------------------------------------------------


def named(chart: str) -> list[tuple[str, ...]]:
    """Return the keys of a chart's own schema, without those that belong to other charts."""
    keys = [path for path in schema.leaves(checks.schema(chart)) if path[0] not in ("common", "global")]
    others = [path for path in keys if "x-charts" in node_at(chart, path)]
    return [path for path in keys if not any(path[: len(other)] == other for other in others)]


def tree_of(paths: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in paths.items():
        node = tree
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = value
    return tree


def wrong_type(node: Mapping[str, Any]) -> Any:
    kinds = {"string": 5, "integer": "five", "number": "five", "boolean": "no", "array": "x", "object": "x"}
    return [5] if isinstance(node["type"], list) else kinds[node["type"]]


def mistakes(chart: str) -> dict[str, dict[tuple[str, ...], Any]]:
    """Return a mistake at every key of a chart, by its kind. A key cannot be null if its default is not empty."""
    keys = named(chart)
    leaves = [path for path in keys if not any(other[: len(path)] == path and other != path for other in keys)]
    sections = [path for path in keys if path not in leaves]
    return {
        "a wrong type": {path: wrong_type(node_at(chart, path)) for path in leaves},
        "null": dict.fromkeys(path for path in leaves if path[-1] in node_at(chart, path[:-1]).get("required", ())),
        "null sections": dict.fromkeys([path for path in sections if len(path) == 1]),
        "unknown keys": {(*path, "zzz"): 1 for path in [(), *sections]},
        "a list": {path: [1] for path in sections if len(path) == 1},
    }


TOTAL = {kind: mistakes(CHART_OF[kind]) for kind in (RUN, CLUSTER, SERVE)}


@pytest.mark.parametrize("kind", TOTAL)
@pytest.mark.parametrize("helm", ["helm", "helm3"])
@pytest.mark.parametrize("what", TOTAL[RUN])
def test_a_mistake_at_every_key_is_reported_for_every_key(
    helm_renderer: HelmRenderer, what: str, helm: str, kind: str
) -> None:
    made = TOTAL[kind][what]
    text = yaml.safe_dump(tree_of(made))
    rendered, printed = helm_renderer.render(helm, kind, text)
    assert not rendered
    assert not TRACE.search(printed)
    keys = {".".join(path) for path in made}
    assert set(sentences(printed)) == keys
    if kind == RUN:
        assert {key for key, _ in problems_of(user(text))} >= keys


@pytest.mark.parametrize("kind", TOTAL)
@pytest.mark.parametrize("helm", ["helm", "helm3"])
@pytest.mark.parametrize("value", [None, [1], {"x": None}, "x"], ids=str)
def test_a_chart_ignores_whatever_the_keys_of_other_charts_are(
    helm_renderer: HelmRenderer, kind: str, helm: str, value: Any
) -> None:
    others = dict.fromkeys(schema.keys_of_others(checks.schema(CHART_OF[kind]), user_of_all()), value)
    assert others
    without = helm_renderer.render(helm, kind, "{}")
    assert without[0], without[1]
    assert helm_renderer.render(helm, kind, yaml.safe_dump(tree_of(others))) == without


def user_of_all() -> dict[str, Any]:
    """Return a tree with every key of every chart."""
    return tree_of({path: 1 for chart in CHART_OF.values() for path in named(chart) if is_leaf(chart, path)})


def is_leaf(chart: str, path: tuple[str, ...]) -> bool:
    return "properties" not in node_at(chart, path)


MANY = """
run: {name: Llama, command: []}
team: {name: Research}
queue: {name: -a, priority: A}
slice: {topology: 4x5, reservation: mine}
image: {repository: "example.com/trainer:v1", tag: latest, rayVersion: two}
storage: {bucket: "gs://x", mountPath: /dev}
head: {cpu: eight}
worker: {memory: 16 GB, env: {A-B: "1", C: "1"}, secretEnv: {C: {name: my, key: k}}, envFrom: {A: Secret}}
data: {files: ["", "gs://b/x"], corpus: python}
"""


COMPARED = """
run: {name: Llama}
slice: {topology: 4x5, reservation: mine}
worker: {env: {C: "1"}, secretEnv: {C: {name: my, key: k}}}
"""


@pytest.mark.parametrize("helm", ["helm", "helm3"])
def test_many_mistakes_are_reported_at_once(helm_renderer: HelmRenderer, helm: str) -> None:
    ours = [sentence for _, sentence in problems_of(user(MANY))]
    assert len(ours) == len(set(ours)) == 19
    compared = [sentence for _, sentence in problems_of(user(COMPARED))]
    _, printed = helm_renderer.render(helm, RUN, MANY)
    reported = [next(sentence for sentence in ours if same(rule, sentence)) for rule in ruled(printed)]
    assert {*ours} - {*reported} == {*compared}  # the schema is evaluated before the templates
    _, printed = helm_renderer.render(helm, RUN, COMPARED)
    # The launcher adds an example of a name and gives the nearest topology.
    differ = {sentence.split(":")[0] for sentence in {*ruled(printed)} ^ {*compared}}
    assert differ == {"run.name", "slice.topology"}


# --- Any value at any key -------------------------------------------------------------------------------------------

WITHIN = {
    "worker": {
        "env": {"A": "b"},
        "secretEnv": {"T": {"name": "my", "key": "k"}},
        "envFrom": {"c": "Secret"},
        "nodeSelector": {"a": "b"},
        "tolerations": {"x": {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}},
    },
    "head": {"tolerations": {"x": {"key": "k"}}, "nodeSelector": {"a": "b"}},
    "cluster": {"groups": {"more": {"accelerator": "v5e", "topology": "2x4"}}, "labels": {"l": "v"}},
    "common": {"accelerators": {"v6e": {"coresPerChip": 1, "topologies": {"4x4": ["ct6e-standard-4t"]}}}},
}
PATHS = [
    *[path for path in schema.leaves(checks.schema("run")) if path[0] not in ("global", "train")],
    *[("cluster", "groups", "more", key) for key in ("accelerator", "topology", "count", "cpu", "memory", "zzz")],
    *[("cluster", "groups", key) for key in ("more", "Head", "", "no")],
    *[("cluster", "labels", key) for key in ("l", "", "a: b")],
    *[("worker", "env", key) for key in ("A", "", "a-b")],
    *[("worker", "secretEnv", "T"), ("worker", "secretEnv", "T", "name"), ("worker", "secretEnv", "T", "key")],
    *[("worker", "envFrom", key) for key in ("c", "", "A: b")],
    *[("worker", "nodeSelector", key) for key in ("a", "", "a: b")],
    *[("worker", "tolerations", "x", key) for key in ("key", "operator", "value", "effect", "tolerationSeconds")],
    *[("worker", "tolerations", "x"), ("head", "tolerations", "x"), ("storage", "sidecarLimits", "cpu")],
    *[("common", "accelerators", "v6e", key) for key in ("kind", "machineTypes", "topologies", "larger", "hbmGiB")],
    *[("common", "accelerators", "v6e", "topologies", key) for key in ("4x4", "x", "2x2")],
    ("common", "accelerators", "v6e"),
]
OF_KUBERNETES = {
    *("extraVolumes", "extraVolumeMounts", "initContainers", "sidecars", "lifecycle", "affinity"),
    *("topologySpreadConstraints", "hostAliases", "dnsConfig", "extra"),
}
SAMPLES: list[Any] = [
    *[None, True, -1, 0, 1, 1.5, 1e30, 2**40, "", " ", "x", "no", "1e5", "Über-ß", "a\nb: c", "{{ .Values.x }}"],
    *["x" * 300, "\"'`$(id)", "gs://b/x", [], [""], [None], [[1]], {}, {"x": None}, {"x": 1}, {"x": {"y": 1}}],
]


def written(tree: dict[str, Any]) -> str:
    """Return a values file in JSON. It is YAML, except for surrogates and U+2028, a line break in YAML."""
    return json.dumps(tree, ensure_ascii=False).replace("\u2028", "\\u2028")


def put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    tree = copy.deepcopy(tree)
    node = tree
    for key in path[:-1]:
        node = node.setdefault(key, {})
    node[path[-1]] = value
    return tree


@settings(max_examples=100)
@given(st.sampled_from(PATHS), st.sampled_from(SAMPLES), st.sampled_from(ALL), st.sampled_from(["helm", "helm3"]))
def test_any_value_at_any_key_renders_a_valid_object_or_both_reject_it(
    helm_renderer: HelmRenderer, path: tuple[str, ...], sample: Any, kind: str, helm: str
) -> None:
    if path in (("common",), ("common", "accelerators")):
        return  # Helm itself rejects values of a library chart that are not a map, before it runs a template
    if isinstance(sample, list if "affinity" in path[:-1] else dict) and OF_KUBERNETES & {*path}:
        return  # the API server checks these fields
    text = written(put(WITHIN, path, sample))
    rendered, printed = helm_renderer.render(helm, kind, text)
    if rendered:
        (obj,) = objects(printed)
        new = "spec.authOptions.enableK8sTokenAuth is an unknown field. (KubeRay 1.5.2)"  # test_run_chart.py tests it
        assert [sentence for sentence in validate(obj) if not sentence.endswith(new)] == []
    else:
        assert not TRACE.search(printed), printed
        assert ruled(printed) or sentences(printed)
    if kind != CLUSTER:
        mine = [key for key, _ in problems_of(user(text, kind))]
        if rendered:  # the launcher alone checks the keys of other charts
            mine = [key for key in mine if not is_of_others(kind, key)]
        assert rendered == (mine == []) or mine == ["run.name"], (printed, mine)


# --- Text that must not change --------------------------------------------------------------------------------------

TEXTS = [
    "plain",
    "two\nlines\n",
    "  spaces at both ends  ",
    "\"double\" 'single' `back`",
    '{{ .Values.run.name }} {{ fail "no" }}',
    "$(id) ${HOME} %s %q 100%",
    "key: value # no comment",
    "- a list",
    "&anchor *alias !tag |",
    "---\nkind: Secret",
    "yes",
    "null",
    "0755",
    "1e5",
    "~",
    "",
    "größer 東京 🚀",
    "<b>&amp;</b> \u2028",
    "back\\slash \\n \\u0041",
    "tab\there",
    "x" * 3000,
]


@pytest.mark.parametrize("helm", ["helm", "helm3"])
@pytest.mark.parametrize("kind", ALL)
def test_text_does_not_change(helm_renderer: HelmRenderer, helm: str, kind: str) -> None:
    env = {f"TEXT_{at}": text for at, text in enumerate(TEXTS)}
    tree: dict[str, dict[str, Any]] = {
        "worker": {"env": env},
        "run": {"command": ["printf", *TEXTS]},
        "data": {"field": TEXTS[4], "tokenizer": {"path": TEXTS[3]}, "corpus": "", "files": [t for t in TEXTS if t]},
        "storage": {"mountPath": '/data {{x}} "q" 🚀', "mountOptions": "implicit-dirs,o={{x}}"},
        "train": {"steps": 12345678, "learning_rate": 3e-5, "tokenizer_path": TEXTS[1]},
    }
    text = written(tree)
    rendered, printed = helm_renderer.render(helm, kind, text)
    assert rendered, printed
    (obj,) = objects(printed)
    assert validate(obj) == []
    hosts = [pod for pod in pods(obj) if pod["spec"]["containers"][0]["name"] != "ray-head"]
    assert hosts
    for pod in hosts:
        (container,) = pod["spec"]["containers"]
        given_ = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert {name: given_[name] for name in env} == env
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts["storage"] == tree["storage"]["mountPath"]
    if kind == CLUSTER:
        return
    for pod in pods(obj):
        config = json.loads(pod["metadata"]["annotations"]["slipway.dev/run-config"])
        for section, part in tree.items():
            for key, value in part.items():
                found = config[section][key]
                assert found == {**found, **value} if isinstance(value, dict) else found == value
    if kind == JOB_SET:
        assert hosts[0]["spec"]["containers"][0]["command"] == tree["run"]["command"]


def pods(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the pod templates in an object."""
    if isinstance(node, dict):
        if "containers" in node.get("spec", {}):
            yield node
        for child in node.values():
            yield from pods(child)
    elif isinstance(node, list):
        for child in node:
            yield from pods(child)


# --- What the launcher accepts --------------------------------------------------------------------------------------


def some(**knobs: st.SearchStrategy[Any] | list[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for maps with some of the keys."""
    optional: dict[str, st.SearchStrategy[Any]] = {
        key: st.sampled_from(knob) if isinstance(knob, list) else knob for key, knob in knobs.items()
    }
    return st.fixed_dictionaries({}, optional=optional)


SLICES: list[dict[str, Any]] = [
    {"accelerator": "v6e", "topology": "4x4"},
    {"accelerator": "v6e", "topology": "1x1"},
    {"accelerator": "v6e", "topology": "2x4", "machineType": "ct6e-standard-8t"},
    {"accelerator": "v5e", "topology": "2x4"},
    {"accelerator": "v5p", "topology": "4x4x8"},
    {"accelerator": "v4", "topology": "2x2x1"},
    {"accelerator": "tpu7x", "topology": "2x2x2"},
    {"accelerator": "h100-80gb", "topology": "", "hosts": 3},
    {"accelerator": "cpu", "topology": "", "hosts": 2},
]
PROVISIONING = [{}, {"provisioning": "spot"}, {"provisioning": "flex-start"}, {"provisioning": "reservation"}]
RESERVED = {"provisioning": "reservation", "reservation": "mine"}
KNOBS = some(
    run=some(
        name=["t", "a" * 35, "x-1"],
        maxRestarts=[0, 7],
        command=[[], ["sleep", "infinity"]],
        deadlineSeconds=[0, 3600, 12345678],
        ttlSeconds=[0, 60],
        keepFinishedDays=[0, 7],
        graceSeconds=[0, 300],
    ),
    slice=st.builds(
        lambda *parts: {key: value for part in parts for key, value in part.items()},
        st.sampled_from(SLICES),
        st.sampled_from([*PROVISIONING, RESERVED]),
        some(count=[1, 2, 7, 8], placement=["exclusive", "topology"]),
    ),
    storage=[
        {"bucket": "research-runs", "mountOptions": ""},
        {"bucket": "my_bucket.example.com", "mountPath": "/mnt/runs", "sidecarLimits": {"cpu": "2", "memory": None}},
        {"kind": "pvc", "claim": "data"},
        {"kind": "local"},
    ],
    team=[{"name": ""}, {"name": "a", "namespace": "b", "serviceAccount": "c"}],
    queue=[{"name": "q", "priority": "high", "podPriority": "p"}, {"name": "q"}],
    image=[{"tag": "", "digest": "sha256:" + "0a" * 32}, {"pullSecrets": ["a", "b.c"]}],
    head=[{"cpu": "500m", "memory": "1.5Gi", "tolerations": {"a": {"key": "k"}}}],
    worker=st.builds(
        lambda asks, more: {**asks, **more},
        st.sampled_from([{}, {"cpu": "4", "memory": "16Gi"}, {"cpu": "0.5", "memory": "512M"}]),
        some(
            env=st.dictionaries(st.sampled_from(["A", "B_1", "JAX_PLATFORMS"]), st.sampled_from(TEXTS)),
            secretEnv=[{"HF_TOKEN": {"name": "hugging-face", "key": "token"}}],
            envFrom=[{"settings": "ConfigMap", "more": "Secret"}],
            nodeSelector=[{"example.com/pool": "true"}],
            avoidNodes=[{"node-1": "2099-01-01", "a.internal": "2098-01-01T00:00:00Z"}],
            tolerations=[{"a": {"key": "k", "operator": "Equal", "value": "true"}}],
        ),
    ),
    security=some(
        runAsUser=[0, 65534],
        hostNetwork=st.booleans(),
        privileged=st.booleans(),
        tokenAuth=st.booleans(),
        k8sTokenAuth=st.booleans(),
    ),
    data=[{"corpus": "", "files": ["/data/*.txt"], "heldOut": {"fraction": 0}}],
    train=some(
        steps=[1, 1000000, None],
        learning_rate=[3e-5, 1, 0.1],
        per_device_batch_size=[0.25, 4],
        enable_checkpointing=st.booleans(),
        logical_axis_rules=[[["activation_batch", ["data", "fsdp"]]]],
    ),
)


OF_MODELS = {"mesh", "sharding", "batch", "attention", "pipeline", "model-key", "context", "quantization", "platforms"}
"""Rules that need the table of models or of accelerators. No schema has either."""


@settings(max_examples=100)
@given(KNOBS, st.sampled_from([RUN, JOB_SET]), st.sampled_from(["helm", "helm3"]))
def test_what_the_launcher_accepts_renders_one_valid_object_with_its_run_config(
    helm_renderer: HelmRenderer, tree: dict[str, Any], kind: str, helm: str
) -> None:
    text = written(tree)
    try:
        launch = plan.plan_launch(user(text, kind), DEFAULTS)
    except plan.CheckFailed as failed:
        if all(problem.rule in OF_MODELS for problem in failed.problems if problem.severity == "error"):
            return
        rendered, printed = helm_renderer.render(helm, kind, text)
        assert not rendered, failed
        return
    rendered, printed = helm_renderer.render(helm, kind, text)
    assert rendered, printed
    (obj,) = objects(printed)
    assert obj["kind"] == {RUN: "RayJob", JOB_SET: "JobSet"}[kind]
    assert (obj["metadata"]["name"], obj["metadata"].get("namespace")) == (launch.name, launch.namespace)
    assert validate(obj) == []
    configs = {pod["metadata"]["annotations"]["slipway.dev/run-config"] for pod in pods(obj)}
    (config,) = configs
    assert json.loads(config) == launch.config


# --- Regressions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ALL)
def test_names_that_yaml_reads_as_another_type(helm_renderer: HelmRenderer, kind: str) -> None:
    tree: dict[str, Any] = {"run": {"name": "no"}, "team": {"name": "true", "namespace": "1e5"}}
    tree["cluster"] = {"groups": {"yes": {"accelerator": "v5e", "topology": "2x4"}}}
    rendered, printed = helm_renderer.render("helm", kind, written(tree), release="no" if kind == CLUSTER else "t")
    assert rendered
    (obj,) = objects(printed)
    assert validate(obj) == []
    assert (obj["metadata"]["name"], obj["metadata"]["namespace"]) == ("no", "1e5")


def test_the_launcher_reports_a_table_that_contradicts_itself() -> None:
    text = "common: {accelerators: {v6e: {topologies: {4x4: [nope]}}}}"
    assert [key for key, _ in problems_of(user(text))] == ["common.accelerators.v6e.topologies.4x4"]
