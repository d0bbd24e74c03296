"""launcher/config/maxtext/mesh.py, compared with functions of MaxText; test_model_table.py runs MaxText itself."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.config import accelerators
from launcher.config.maxtext import mesh
from launcher.config.maxtext.mesh import MeshError
from launcher.config.values.files import chart_defaults

TABLE: dict[str, Any] = chart_defaults("run").tree["common"]["accelerators"]


def sizes(train: dict[str, Any], slices: int = 1, devices: int = 16) -> dict[str, int]:
    """Return the axes with more than one device."""
    return {axis: size for axis, size in mesh.mesh(train, slices=slices, devices=devices).sizes.items() if size > 1}


def why(train: dict[str, Any], slices: int = 1, devices: int = 16) -> tuple[str, list[str], str]:
    with pytest.raises(MeshError) as caught:
        mesh.mesh(train, slices=slices, devices=devices)
    return caught.value.why, caught.value.keys, caught.value.product


def test_what_is_left_goes_to_the_open_axis() -> None:
    assert sizes({}) == {"fsdp": 16}
    assert sizes({"ici_tensor_parallelism": 4}) == {"fsdp": 4, "tensor": 4}
    assert sizes({"ici_fsdp_parallelism": 1, "ici_data_parallelism": -1}) == {"data": 16}
    assert sizes({"ici_fsdp_parallelism": 4, "ici_pipeline_parallelism": 4}) == {"fsdp": 4, "stage": 4}
    assert sizes({"ici_fsdp_parallelism": 16}) == {"fsdp": 16}
    assert sizes({}, devices=1) == {}


def test_slices_multiply() -> None:
    assert sizes({}, slices=2) == {"data": 2, "fsdp": 16}
    assert sizes({"dcn_data_parallelism": 1, "dcn_fsdp_parallelism": 2}, slices=2) == {"fsdp": 32}
    assert sizes({"dcn_diloco_parallelism": -1}, slices=2) == {"diloco": 2, "fsdp": 16}
    found = mesh.mesh({"ici_tensor_parallelism": 4}, slices=2, devices=16)
    assert (found.devices, found.over(["data", "fsdp"]), found.over(["nothing"])) == (32, 8, 1)


def test_what_maxtext_refuses() -> None:
    assert why({"ici_tensor_parallelism": 3}) == ("product", ["ici_tensor_parallelism"], "3")
    assert why({"ici_fsdp_parallelism": 4, "ici_tensor_parallelism": 2}) == (
        "product",
        ["ici_fsdp_parallelism", "ici_tensor_parallelism"],
        "4 x 2 = 8",
    )
    assert why({"ici_data_parallelism": -1}) == ("open", ["ici_data_parallelism", "ici_fsdp_parallelism"], "")
    assert why({"ici_data_parallelism": 0})[0] == "odd"
    assert why({"ici_data_parallelism": -2})[0] == "odd"
    assert why({"dcn_fsdp_parallelism": 2}) == ("one-slice", ["dcn_fsdp_parallelism"], "")
    assert why({"dcn_sequence_parallelism": 2})[0] == "one-slice"
    assert why({"dcn_fsdp_parallelism": 4}, slices=2) == ("product", ["dcn_fsdp_parallelism"], "4")
    assert why({"dcn_fsdp_parallelism": -1}, slices=2)[0] == "open"


def test_a_mesh_of_its_own_has_its_own_axes() -> None:
    assert mesh.mesh_axes({"custom_mesh_and_rule": "pure-fsdp"}) == ["fsdp"]
    assert "tensor" in mesh.mesh_axes({})
    assert mesh.rules({"custom_mesh_and_rule": "pure-fsdp"}) is None
    assert mesh.rules({"logical_axis_rules": [["norm", "fsdp"]]}) is None


def test_a_models_rules_replace_those_of_the_same_name() -> None:
    rules = mesh.rules({"model_name": "llama2-7b"})
    assert rules is not None
    assert [axes for name, axes in rules if name == "norm"] == [("fsdp",)]
    assert ("vocab", ("tensor", "tensor_sequence", "autoregressive")) in rules


def test_an_axis_is_given_to_one_side_of_an_array() -> None:
    rules = mesh.rules({})
    assert rules is not None
    embed, mlp = mesh.assigned(("embed", "mlp"), rules)
    assert mlp == ("fsdp_transpose", "tensor", "tensor_sequence", "autoregressive")
    assert embed == ("fsdp", "context", "context_usp_ulysses", "expert")  # without fsdp_transpose, which mlp has
    assert mesh.assigned(("kv",), rules) == [()]


def test_batches() -> None:
    assert mesh.batch({"per_device_batch_size": 3}, 8) == mesh.Batch(24, 24, 24)
    assert mesh.batch({"per_device_batch_size": 0.5}, 8) == mesh.Batch(8, 4, 4)
    assert mesh.batch({"per_device_batch_size": 2, "gradient_accumulation_steps": 4}, 8) == mesh.Batch(64, 64, 16)
    assert mesh.batch({"per_device_batch_size": 2, "expansion_factor_real_data": 2}, 8) == mesh.Batch(32, 16, 16)
    both = {"per_device_batch_size": 2, "eval_per_device_batch_size": 1, "gradient_accumulation_steps": 4}
    assert mesh.batch(both, 8, evaluation=True) == mesh.Batch(8, 8, 8)
    assert mesh.batch({}, 8) == mesh.Batch(96, 96, 96)  # base.yml's 12


def test_ironwood_has_two_devices_a_chip() -> None:
    wanted = {"topology": "2x2x1", "machineType": "", "hosts": 0}
    assert mesh.devices_per_slice(accelerators.resolve({**wanted, "accelerator": "tpu7x"}, TABLE)) == 8
    assert mesh.devices_per_slice(accelerators.resolve({**wanted, "accelerator": "v5p"}, TABLE)) == 4
