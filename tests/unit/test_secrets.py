"""Secrets in worker.env: which names look like secrets, and that no report or difference shows their values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.config.plan import config_difference
from launcher.config.secrets import HIDDEN, hide, is_secret
from launcher.helm.diff import differences
from launcher.k8s.label_keys import RUN_CONFIG
from tests.charts.bad_values import PLAIN_NAMES

SECRET = "hf_8e1bPq"
NAMES = """
HF_TOKEN HUGGING_FACE_HUB_TOKEN WANDB_API_KEY AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AZURE_CLIENT_SECRET
AZURE_STORAGE_KEY OPENAI_API_KEY KAGGLE_KEY COMET_API_KEY NEPTUNE_API_TOKEN CLEARML_API_SECRET_KEY GITHUB_TOKEN
MLFLOW_TRACKING_PASSWORD PGPASSWORD DB_PASSWD SSH_PRIVATE_KEY SSH_PASSPHRASE RAY_AUTH_TOKEN NGC_APIKEY TOKEN
API_CREDENTIAL SERVICE_CREDENTIALS MY_SECRET MY_SECRETS HF_TOKEN2
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", PLAIN_NAMES.split())
def test_names_that_only_look_like_those_of_secrets(name: str) -> None:
    assert not is_secret(name)


def config(token: str) -> dict[str, Any]:
    """A run config as an older version stored it."""
    return {"run": {"name": "a"}, "worker": {"env": {"HF_TOKEN": token, "A": "1"}}}


def test_a_difference_of_configs_hides_the_secret() -> None:
    assert config_difference(config(SECRET), config("other")) == [f'worker.env.HF_TOKEN: "{HIDDEN}" -> "{HIDDEN}"']


def pod(*variables: dict[str, Any], annotation: str = "") -> dict[str, Any]:
    containers = [{"name": "trainer", **({"env": list(variables)} if variables else {})}]
    return {
        "metadata": {"name": "a", "annotations": {RUN_CONFIG: annotation}},
        "spec": {"containers": containers},
    }


def test_a_difference_of_objects_hides_the_secret() -> None:
    variable = {"name": "HF_TOKEN", "value": SECRET}
    plain = {"name": "A", "value": "1"}
    for before, after in (
        (pod(variable), pod({**variable, "value": "other"})),
        (pod(plain), pod(plain, variable)),
        (pod(), pod(variable)),
        (pod(annotation=json.dumps(config(SECRET))), pod(annotation=json.dumps(config("other")))),
        (pod(annotation=json.dumps(config(SECRET))), pod(annotation="{}")),
    ):
        for changes in (list(differences(before, after)), list(differences(after, before))):
            shown = " ".join([*map(str, changes), str([(change.old, change.new) for change in changes])])
            assert HIDDEN in shown
            assert SECRET not in shown


def test_other_values_are_unchanged() -> None:
    values: tuple[Any, ...] = (
        "a",
        1,
        None,
        [],
        {"a": [1, {"b": "TOKEN"}]},
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {}}},
    )
    for value in values:
        assert hide(("spec", "env", "A"), value) == value
