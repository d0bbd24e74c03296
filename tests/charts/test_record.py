"""The CronJob of charts/queues that writes the records of the teams' runs, and its rights."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.charts.queues_chart import BASE, Tree, merged, names, one, rejections, render, tree

ON = "record: {enabled: true, image: 'example.com/launcher:1.2.3', folder: 'gs://lab-records'}"


def test_it_is_off_by_default(helm4: Path, tmp_path: Path) -> None:
    assert not [name for name in names(render(helm4, BASE, tmp_path)) if "record" in name[1]]


def test_the_cron_job_and_its_rights(helm4: Path, tmp_path: Path) -> None:
    objects = render(helm4, merged(BASE, tree(ON + "\nteams: {research: {notify: true}}")), tmp_path)
    job = one(objects, "CronJob", "slipway-record")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["launcher", "record", "gs://lab-records"]
    assert container["args"] == ["--namespace=product", "--namespace=research", "--notify=slipway-notify"]
    assert container["env"][1]["valueFrom"]["secretKeyRef"]["optional"] is True
    assert (pod["serviceAccountName"], job["spec"]["concurrencyPolicy"]) == ("slipway-record", "Forbid")
    runs = {"rayjobs": {"list"}, "jobsets": {"list"}, "workloads": {"list"}, "events": {"list"}}
    assert allowed(one(objects, "Role", "product-record")) == runs
    assert allowed(one(objects, "Role", "research-record")) == {**runs, "secrets": {"get"}}
    (secret,) = [rule for rule in one(objects, "Role", "research-record")["rules"] if rule["resources"] == ["secrets"]]
    assert secret["resourceNames"] == ["slipway-notify"]
    for team in ("product", "research"):
        binding = one(objects, "RoleBinding", f"{team}-record")
        assert [subject["name"] for subject in binding["subjects"]] == ["slipway-record"]
    assert not [each for each in objects if each["kind"].startswith("Cluster") and "record" in each["metadata"]["name"]]


def allowed(role: Tree) -> dict[str, set[str]]:
    return {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            ON.replace(":1.2.3", ""),
            'record.image is "example.com/launcher"; set an image that has the launcher, with a tag or',
        ),
        (ON.replace("1.2.3", "latest"), "record.image has the tag latest; set the tag of a version, or a digest."),
        (ON.replace("gs://", "/"), 'record.folder is "/lab-records"; set the URL of a folder in a bucket, such as'),
        ("teams: {research: {notify: true}}", "teams.research.notify has no effect, because nothing reads the Secret;"),
    ],
)
def test_values_that_do_not_work(helm4: Path, tmp_path: Path, values: str, says: str) -> None:
    (sentence,) = rejections(helm4, merged(BASE, tree(values)), tmp_path)
    assert sentence.startswith(says)
