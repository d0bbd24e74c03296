"""The overlay of docs/how-to/extend-pods.md on all charts: accepted by the API server and by the admission policy."""

from __future__ import annotations

from pathlib import Path

import yaml

from launcher.paths import charts_dir
from tests.charts.bad_values import CLUSTER, GOOD, KINDS, SERVE
from tests.charts.helm import KUBE_VERSION, template
from tests.charts.queues_chart import tree
from tests.charts.schemas import objects, pod_templates
from tests.cluster.control_plane import ControlPlane
from tests.cluster.run_policy import OURS, installed
from tests.docs.pages import DOCS, page
from tests.tools import tool

TEAM = f"""
team: {{name: research, namespace: {OURS}, serviceAccount: research}}
queue: {{name: research, priority: high, podPriority: ""}}
storage: {{bucket: runs}}
pods: {{lifecycle: {{postStart: {{exec: {{command: [touch, /tmp/started]}}}}}}}}
"""


def test_a_platform_overlay_on_all_charts(control_plane: ControlPlane, tmp_path: Path) -> None:
    shown = {block.file: block.text for block in page(DOCS / "how-to" / "extend-pods.md").blocks}
    texts = {"good": GOOD, "team": TEAM, "platform": shown["platform.yaml"]}
    rendered = {}
    for kind in ("ray-job", "job-set", CLUSTER, SERVE):
        files = []
        for name, text in {**texts, "kind": KINDS[kind]}.items():
            files.append(tmp_path / f"{name}.yaml")
            files[-1].write_text(text, encoding="utf-8")
        chart = charts_dir() / {CLUSTER: "ray-cluster", SERVE: "serve"}.get(kind, "run")
        (rendered[kind],) = objects(template(tool("helm"), chart, files, "--kube-version", KUBE_VERSION))

    for kind, obj in rendered.items():
        assert obj["metadata"]["labels"]["example.com/cost-center"] == "ml", kind
        for path, pod in pod_templates(obj):
            spec = pod["spec"]
            assert spec["schedulerName"] == "second-scheduler", path
            assert [each["name"] for each in spec["initContainers"]] == ["log-shipper"], path
            assert {"corporate-ca", "vault"} <= {each["name"] for each in spec["volumes"]}, path
            assert {"name": "SSL_CERT_FILE", "value": "/etc/corporate-ca/ca.crt"} in spec["containers"][0]["env"], path
            assert spec["containers"][0]["envFrom"] == [{"configMapRef": {"name": "proxy-settings"}}], path
            assert spec["initContainers"][0]["lifecycle"]["preStop"]["exec"]["command"] == ["/bin/flush"], path
            hooks = spec["containers"][0]["lifecycle"]
            assert hooks["postStart"] == {"exec": {"command": ["touch", "/tmp/started"]}}, path
            assert ("trainer.prestop" in str(hooks.get("preStop"))) == (kind != "job-set"), path
            assert pod["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false", path
            assert pod["metadata"]["labels"]["example.com/cost-center"] == "ml", path

    with installed(control_plane, tmp_path, tree(shown["queues.yaml"])) as users:
        for kind, obj in rendered.items():
            assert users.attempt(users.alice, obj) == "", kind
            for fault in ("privileged", "unlisted", "a hook of the kubelet's network"):
                bad = yaml.safe_load(yaml.safe_dump(obj))
                for _, pod in pod_templates(bad):
                    sidecar = pod["spec"]["initContainers"][0]
                    if fault == "privileged":
                        sidecar["securityContext"] = {"privileged": True}
                    elif fault == "unlisted":
                        sidecar["name"] = "another"
                    else:
                        sidecar["lifecycle"]["preStop"] = {"httpGet": {"host": "169.254.169.254", "port": 80}}
                assert "initContainers" in users.attempt(users.alice, bad), (kind, fault)
