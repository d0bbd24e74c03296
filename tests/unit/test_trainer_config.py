"""The requests to Ray and the arguments of MaxText that follow from a run config."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from launcher.config import resume as launcher_resume
from launcher.config.checks import rules as checks
from launcher.config.checks import this_machine
from launcher.config.maxtext.keys import SAVES_WITHOUT_POSITION
from launcher.config.plan import plan_launch
from launcher.config.values.files import Values, chart_defaults, load
from trainer import checks as trainer_checks
from trainer import config as trainer_config
from trainer import maxtext_keys, maxtext_setup
from trainer import resume as trainer_resume
from trainer.errors import ConfigError
from trainer.failures import describe
from trainer.loop import environment
from trainer.ray_driver import preemption_message, scaling_config


@pytest.fixture(scope="module")
def defaults() -> Values:
    return chart_defaults("run")


def run_config(tmp_path: Path, defaults: Values, *sets: str) -> trainer_config.RunConfig:
    """Write the run config with the launcher's code, and read it with the trainer's."""
    required = ["run.name=test", "data.corpus=python", "train.steps=3", "storage.bucket=bucket"]
    required += ["image.repository=i", "image.tag=v1", "worker.cpu='8'", "worker.memory=8Gi"]
    user = load([], [*required, *sets])
    path = tmp_path / "run.json"
    path.write_text(json.dumps(plan_launch(user, defaults).config))
    return trainer_config.read(path)


TPU = [
    # accelerator, topology, machine type; Ray's name; hosts, chips per host
    ("v4", "2x2x2", "", "TPU-V4", 2, 4),
    ("v4", "4x4x8", "", "TPU-V4", 32, 4),
    ("v5e", "2x4", "ct5lp-hightpu-4t", "TPU-V5LITEPOD", 2, 4),
    ("v5e", "2x4", "ct5lp-hightpu-8t", "TPU-V5LITEPOD", 1, 8),
    ("v5e", "4x4", "", "TPU-V5LITEPOD", 4, 4),
    ("v5p", "4x4x4", "", "TPU-V5P", 16, 4),
    ("v6e", "4x4", "", "TPU-V6E", 4, 4),
    ("v6e", "16x16", "", "TPU-V6E", 64, 4),
    ("tpu7x", "2x2x2", "", "TPU-V7X", 2, 4),
]


@pytest.mark.parametrize(("accelerator", "topology", "machine", "ray_name", "hosts", "chips"), TPU)
def test_a_tpu_slice_asks_for_whole_slices_of_its_topology(
    tmp_path: Path,
    defaults: Values,
    accelerator: str,
    topology: str,
    machine: str,
    ray_name: str,
    hosts: int,
    chips: int,
) -> None:
    sets = [f"slice.accelerator={accelerator}", f"slice.topology={topology}", f"slice.machineType={machine}"]
    for slices in (1, 2):
        config = run_config(tmp_path, defaults, "run.kind=ray-job", *sets, f"slice.count={slices}")
        request_ = scaling_config(config)
        assert (request_.use_tpu, request_.use_gpu) == (True, False)
        assert (request_.topology, request_.accelerator_type) == (topology, ray_name)
        assert request_.num_workers == hosts * slices
        assert request_.resources_per_worker == {"TPU": chips}


def test_rays_own_rules_agree_on_the_hosts_of_a_tpu_slice() -> None:
    from ray.util.tpu import get_tpu_worker_resources

    for _, topology, _, ray_name, hosts, chips in TPU:
        workers, resources = get_tpu_worker_resources(
            topology=topology, accelerator_type=ray_name, resources_per_worker={"TPU": chips}, num_slices=1
        )
        assert (workers, resources["TPU"]) == (hosts, chips)


def test_every_gpu_of_the_table_asks_for_all_chips_of_a_host(tmp_path: Path, defaults: Values) -> None:
    table = defaults.tree["common"]["accelerators"]
    gpus = {name: row for name, row in table.items() if row["kind"] == "gpu"}
    assert gpus
    for name in gpus:
        config = run_config(tmp_path, defaults, "run.kind=ray-job", f"slice.accelerator={name}", "slice.hosts=2")
        request_ = scaling_config(config)
        assert (request_.use_tpu, request_.use_gpu, request_.num_workers) == (False, True, 2)
        assert request_.resources_per_worker == {"GPU": config.accelerator["chipsPerHost"]}


def test_cpu_hosts_ask_for_one_cpu_each(tmp_path: Path, defaults: Values) -> None:
    config = run_config(
        tmp_path, defaults, "run.kind=local", "storage.kind=local", "slice.accelerator=cpu", "slice.hosts=2"
    )
    for local, strategy in ((True, "PACK"), (False, "STRICT_SPREAD")):
        request_ = scaling_config(config, local=local)
        assert (request_.use_tpu, request_.use_gpu, request_.num_workers) == (False, False, 2)
        assert (request_.resources_per_worker, request_.placement_strategy) == ({"CPU": 1}, strategy)


@pytest.mark.parametrize(("accelerator", "platforms"), [("v6e", "tpu,cpu"), ("h100-80gb", "cuda,cpu"), ("cpu", "cpu")])
def test_each_kind_of_chip_has_its_jax_platform(
    tmp_path: Path, defaults: Values, accelerator: str, platforms: str
) -> None:
    topology = "4x4" if accelerator == "v6e" else ""
    config = run_config(
        tmp_path, defaults, "run.kind=ray-job", f"slice.accelerator={accelerator}", f"slice.topology={topology}"
    )
    assert environment(config)["JAX_PLATFORMS"] == platforms


def test_the_values_environment_wins(tmp_path: Path, defaults: Values) -> None:
    config = run_config(tmp_path, defaults, *LOCAL, "worker.env.JAX_PLATFORMS=mine", "worker.env.LEVEL='3'")
    assert environment(config)["JAX_PLATFORMS"] == "mine"
    assert environment(config)["LEVEL"] == "3"


LOCAL = ("run.kind=local", "storage.kind=local", "slice.accelerator=cpu", "slice.hosts=2")


def argv(config: trainer_config.RunConfig) -> dict[str, Any]:
    return {
        key: json.loads(value)
        for key, _, value in (each.partition("=") for each in maxtext_keys.maxtext_argv(config)[2:])
    }


def test_maxtext_keys_pass_through_untouched(tmp_path: Path, defaults: Values) -> None:
    config = run_config(
        tmp_path, defaults, *LOCAL, "train.learning_rate=3e-4", "train.remat_policy=full", "train.adamw_mask={a,b}"
    )
    keys = argv(config)
    assert keys["learning_rate"] == 3e-4
    assert keys["remat_policy"] == "full"
    assert keys["adamw_mask"] == ["a", "b"]
    assert keys["run_name"] == "test"
    assert keys["steps"] == 3


def test_the_held_out_part_is_evaluated_after_the_last_step_by_default(tmp_path: Path, defaults: Values) -> None:
    keys = argv(run_config(tmp_path, defaults, *LOCAL))
    assert (keys["eval_interval"], keys["eval_start_step"]) == (3, 2)
    keys = argv(run_config(tmp_path, defaults, *LOCAL, "train.eval_interval=2"))
    assert (keys["eval_interval"], keys["eval_start_step"]) == (2, 1)
    keys = argv(run_config(tmp_path, defaults, *LOCAL, "data.heldOut.fraction=0"))
    assert keys["eval_interval"] == -1


def test_an_evaluation_without_an_end_is_rejected(tmp_path: Path, defaults: Values) -> None:
    with pytest.raises(ConfigError, match=r"train.eval_steps must be positive"):
        argv(with_train(run_config(tmp_path, defaults, *LOCAL), eval_steps=-1))
    with pytest.raises(ConfigError, match="nothing is held out"):
        argv(with_train(run_config(tmp_path, defaults, *LOCAL, "data.heldOut.fraction=0"), eval_interval=2))


def test_checkpoints_without_the_position_in_the_text_are_rejected(tmp_path: Path, defaults: Values) -> None:
    config = run_config(tmp_path, defaults, *LOCAL)
    for key in SAVES_WITHOUT_POSITION:
        with pytest.raises(ConfigError, match=rf"train\.{key} do not have the position in the text"):
            argv(with_train(config, **{key: True}))
        argv(with_train(config, **{key: False}))


def test_the_launcher_and_the_trainer_agree_on_the_keys_that_slipway_owns(tmp_path: Path, defaults: Values) -> None:
    owned = set(maxtext_keys.owned_keys(run_config(tmp_path, defaults, *LOCAL)))
    # The launcher also rejects a secret in values, which the trainer never sets.
    assert set(checks.OWNED) | set(checks.OWNED_WITH_DATA) == owned | {"hf_access_token"}


def test_a_key_that_slipway_owns_is_rejected_without_the_launcher_too(tmp_path: Path, defaults: Values) -> None:
    config = run_config(tmp_path, defaults, *LOCAL)
    tree = json.loads(json.dumps(config.tree))
    tree["train"]["run_name"] = "mine"
    config.path.write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match=r"train.run_name is set by Slipway"):
        trainer_checks.check(trainer_config.read(config.path))


# Values of the keys below that are not sizes.
CHANGES: dict[str, tuple[Any, Any]] = {
    "model_name": ("default", "llama2-7b"),
    "decoder_block": ("llama2", "gemma"),
    "opt_type": ("adamw", "sgd"),
    "scan_layers": (True, False),
    "packing": (True, False),
    "grain_packing_type": ("first_fit", "best_fit"),
}


@pytest.mark.parametrize("key", [*trainer_resume.OF_THE_MODEL, *trainer_resume.OF_THE_TEXT])
def test_a_change_that_the_trainer_refuses_is_refused_before_the_submit(key: str) -> None:
    was, now = CHANGES.get(key, (2, 4))
    old, new = ({"data": {"corpus": {"url": "text"}}, "train": {key: value}} for value in (was, now))
    changes = launcher_resume.obstacles(old, new, 6)
    assert any(change.startswith(f"train.{key}: ") for change in changes)


def with_vocabulary(config: trainer_config.RunConfig, rows: int) -> trainer_config.RunConfig:
    return with_train(config, vocab_size=rows)


def with_train(config: trainer_config.RunConfig, **train: Any) -> trainer_config.RunConfig:
    """Return a config that the launcher would refuse."""
    tree = json.loads(json.dumps(config.tree))
    tree["train"] |= train
    config.path.write_text(json.dumps(tree))
    return trainer_config.read(config.path)


def test_a_tokenizer_with_more_pieces_than_the_model_is_rejected(
    tmp_path: Path, defaults: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_machine, "memory", lambda: None)  # this machine has too little for gpt3
    with pytest.raises(
        ConfigError, match=r"has 32,000 pieces, but the model has room for 512; set train.vocab_size: 32000"
    ):
        trainer_checks.check(with_vocabulary(run_config(tmp_path, defaults, *LOCAL), 512))
    # gpt3's embedding is larger than the tokenizer of llama2; MaxText's default embedding has the same size as it.
    for more in ("train.model_name=gpt3-175b", "train.vocab_size=32000", "train.steps=4"):
        config = run_config(tmp_path, defaults, *LOCAL, more, "train.enable_checkpointing=false")
        assert trainer_checks.check(config)["files"] > 100


def test_the_ids_of_every_kind_of_tokenizer_have_rows(tmp_path: Path, defaults: Values) -> None:
    """In the files of a tokenizer, an added token can have a larger id than all others."""
    words = {f"w{number}": number for number in range(500)}
    fast = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    fast.add_special_tokens(["<added>"])
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    fast.save(str(folder / "tokenizer.json"))
    ranks = tmp_path / "ranks.tiktoken"
    ranks.write_bytes(b"".join(base64.b64encode(bytes([n])) + b" %d\n" % n for n in range(245)))
    for kind, path in (("huggingface", folder), ("tiktoken", ranks)):
        chosen = (*LOCAL, f"data.tokenizer.kind={kind}", f"data.tokenizer.path={path}")
        trainer_checks.check(run_config(tmp_path, defaults, *chosen, "train.vocab_size=501"))
        with pytest.raises(ConfigError, match=r"has 501 pieces, but the model has room for 500; set"):
            trainer_checks.check(run_config(tmp_path, defaults, *chosen, "train.vocab_size=500"))
    llama3 = (
        "data.tokenizer.kind=tiktoken",
        "data.tokenizer.path=tokenizer_llama3.tiktoken",
        "train.vocab_size=128256",
    )
    packaged = run_config(tmp_path, defaults, *LOCAL, *llama3)
    with pytest.raises(ConfigError, match=r"has 128,256 pieces, but the model has room for 32,000"):
        trainer_checks.check(with_vocabulary(packaged, 32_000))


@pytest.mark.parametrize(
    ("kind", "path", "message"),
    [
        ("tiktoken", "text", "text is not a tiktoken file, which has a token in base64 and its rank in each line"),
        ("tiktoken", "blank", "blank is not a tiktoken file, which has a token in base64 and its rank in each line"),
        ("huggingface", "text", "text is a file; with data.tokenizer.kind: huggingface, set the path of its folder"),
        ("huggingface", "gone", "gone does not exist; set the path of a folder, or a name on Hugging Face"),
        ("huggingface", "damaged", "damaged cannot be loaded (expected ident at line 1"),
        ("huggingface", "empty", "empty cannot be loaded (Couldn't instantiate the backend tokenizer); set a folder"),
    ],
)
def test_a_tokenizer_that_cannot_be_loaded_is_found_by_the_check(
    tmp_path: Path, defaults: Values, kind: str, path: str, message: str
) -> None:
    (tmp_path / "text").write_text("no tokenizer\n")
    (tmp_path / "blank").write_text("\n")
    for folder in ("damaged", "empty"):
        (tmp_path / folder).mkdir()
    (tmp_path / "damaged" / "tokenizer.json").write_text("no JSON")
    chosen = (f"data.tokenizer.kind={kind}", f"data.tokenizer.path={tmp_path / path}")
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path}/{message}")):
        trainer_checks.check(run_config(tmp_path, defaults, *LOCAL, *chosen))


def test_a_dataset_type_without_its_text_is_rejected(tmp_path: Path, defaults: Values) -> None:
    def check(**train: Any) -> None:
        config = run_config(tmp_path, defaults, *LOCAL, "data.files=[]", "data.corpus=", "train.dataset_type=synthetic")
        trainer_checks.check(with_train(config, dataset_type="grain", **train))

    with pytest.raises(ConfigError, match=r"^train.dataset_type: grain has no text; set train.grain_train_files"):
        check()
    with pytest.raises(ConfigError, match=r"^train.eval_interval is 5, but .* set train.grain_eval_files"):
        check(grain_train_files="x", eval_interval=5)
    check(grain_train_files="x", eval_interval=-1)


def test_a_file_of_maxtext_that_does_not_exist(tmp_path: Path, defaults: Values) -> None:
    config = run_config(tmp_path, defaults, *LOCAL, "train.compiled_trainstep_file=/no/such/file")
    with pytest.raises(ConfigError, match=r"^train.compiled_trainstep_file: /no/such/file is not a file; set the path"):
        trainer_checks.check(config)


def test_an_assertion_of_maxtext_without_a_message_names_its_line() -> None:
    hosts, factor = 1, 2
    with pytest.raises(AssertionError) as raised:
        assert hosts // factor
    raised.value.args = ()  # pytest adds a message
    expected = "MaxText rejects the config: AssertionError: assert hosts // factor"
    assert maxtext_setup.sentence(raised.value) == expected


def test_missing_weights_are_rejected_until_the_run_has_a_checkpoint(tmp_path: Path, defaults: Values) -> None:
    weights = tmp_path / "weights"
    here = (*LOCAL, f"storage.mountPath={tmp_path / 'runs'}")
    config = run_config(tmp_path, defaults, *here, f"train.load_parameters_path={weights}")
    with pytest.raises(ConfigError, match=rf"train.load_parameters_path: {weights} does not exist; set the items"):
        trainer_checks.check(config)
    (config.folder / "checkpoints" / "3").mkdir(parents=True)  # MaxText resumes from it, and reads no other weights
    trainer_checks.check(config)
    run = run_config(tmp_path, defaults, *here, "run.name=other", "train.load_parameters_path=gs://bucket/weights")
    trainer_checks.check(run)  # MaxText itself reads a URL


def test_weights_of_another_run(tmp_path: Path, defaults: Values, monkeypatch: pytest.MonkeyPatch) -> None:
    """`from: RUN` is its last step, if it has reached it; each host then reads the same step."""
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    base = tmp_path / "runs" / "base"

    def check(source: str = "base", name: str = "tuned") -> list[str]:
        here = (*LOCAL, f"storage.mountPath={tmp_path / 'runs'}", f"from={source}", f"run.name={name}")
        config = run_config(tmp_path, defaults, *here)
        trainer_checks.check(config)
        return [word for word in maxtext_keys.maxtext_argv(config) if word.startswith("load_parameters_path=")]

    base.mkdir(parents=True)
    with pytest.raises(ConfigError, match=rf"^from: the run base has no checkpoint in {base}/checkpoints\.$"):
        check()
    for step in (3, 7):
        (base / "checkpoints" / str(step) / "items").mkdir(parents=True)
    (base / "checkpoints" / "9.orbax-checkpoint-tmp" / "items").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"^from: the last checkpoint of the run base has an unknown number of steps"):
        check()
    (base / "run.json").write_text('{"train": {"steps": 9}}')
    with pytest.raises(ConfigError, match=r"has 8 of its 9 steps; to start from it, set from: base@7\.$"):
        check()
    assert check("base@7") == [f'load_parameters_path="{base}/checkpoints/7/items"']
    with pytest.raises(ConfigError, match=r"^from: base@5: /.*/5/items does not exist\. Its checkpoints are: 3, 7\.$"):
        check("base@5")
    with pytest.raises(ConfigError, match=r"Its checkpoints are: 3, 7\. 7 is the one after step 8\.$"):
        check("base@8")
    (base / "run.json").write_text('{"train": {"steps": 8}}')
    assert check() == [f'load_parameters_path="{base}/checkpoints/7/items"']
    with pytest.raises(ConfigError, match=r"^from: no checkpoint of base@best has a held-out loss; set from to a run"):
        check("base@best")
    (base / "metrics.jsonl").write_text(
        "".join(f'{{"step": {step}, "eval_loss": {loss}}}\n' for step, loss in ((0, 9), (4, 2), (6, 1), (8, 3)))
    )
    assert check("base@best") == [f'load_parameters_path="{base}/checkpoints/3/items"']
    # A run that has a checkpoint resumes from it, even if those of the other run were deleted.
    (tmp_path / "runs" / "gone").mkdir()
    (tmp_path / "runs" / "resumed" / "checkpoints" / "1").mkdir(parents=True)
    check("gone", "resumed")
    (tmp_path / "weights" / "items").mkdir(parents=True)
    assert check(str(tmp_path / "weights"))[0].endswith('/weights/items"')
    with pytest.raises(ConfigError, match=r"^from: /other: /other/items does not exist\. Set from to a run, or to"):
        check("/other")
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"/llama is a model in Hugging Face format; convert it with launcher import"):
        check(str(tmp_path / "llama"))


def test_an_invalid_tokenizer_is_named(tmp_path: Path, defaults: Values) -> None:
    text = tmp_path / "tokenizer.model"
    text.write_text("no model")
    with pytest.raises(ConfigError, match=r"tokenizer.model is not a sentencepiece model"):
        trainer_checks.check(run_config(tmp_path, defaults, *LOCAL, f"data.tokenizer.path={text}"))
    with pytest.raises(ConfigError, match=r"is not a file"):
        trainer_checks.check(run_config(tmp_path, defaults, *LOCAL, f"data.tokenizer.path={tmp_path}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "the key run is missing"),
        ('{"run": {}}', "the key run.name is missing"),
    ],
)
def test_an_invalid_config_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        trainer_config.read(path)
    with pytest.raises(ConfigError, match="Cannot read the run config"):
        trainer_config.read(tmp_path / "none.json")


def test_the_folder_keeps_the_config(tmp_path: Path, defaults: Values) -> None:
    """A report of a folder in a bucket reads the config from there. A new config (--continue) replaces it."""
    sets = ["slice.accelerator=v6e", "slice.topology=4x4", f"storage.mountPath={tmp_path}/mounted"]
    config = run_config(tmp_path, defaults, *sets)
    config.folder.mkdir(parents=True)
    stored = config.folder / "run.json"
    trainer_config.keep(config)
    assert json.loads(stored.read_text()) == config.tree
    stored.write_text(json.dumps(config.tree, indent=2))  # the launcher's format on the user's machine
    trainer_config.keep(config)
    assert stored.read_text() == json.dumps(config.tree, indent=2)
    stored.write_text("{")
    trainer_config.keep(config)
    trainer_config.keep(run_config(tmp_path, defaults, *sets, "train.steps=9"))
    assert json.loads(stored.read_text())["train"]["steps"] == 9
    assert {path.name for path in config.folder.iterdir()} == {"run.json", trainer_config.EARLIER_FILE}


class TrainingFailed(Exception):
    """Has the field of Ray Train's error: `worker_failures` by rank."""

    def __init__(self, failures: dict[int, BaseException]) -> None:
        super().__init__()
        self.worker_failures = failures


@pytest.mark.parametrize(("workers", "suffix"), [(1, ""), (8, ""), (200, "; and 192 more")])
def test_a_failure_of_many_workers_is_one_sentence_that_fits_a_status(workers: int, suffix: str) -> None:
    """KubeRay stores the last 20,000 characters of a job's output in its status."""
    message = describe(TrainingFailed({rank: OSError(f"{'x' * 500}\nand more") for rank in reversed(range(workers))}))
    assert message.startswith("Workers failed and no restart was left (worker 0 failed: OSError: x")
    assert message.endswith(f"{'x' * 500}{suffix}).")
    assert len(message) < 10_000
    assert "\n" not in message


@pytest.mark.parametrize(
    ("sets", "outcome"),
    [
        ([], "with a checkpoint, and resume on other machines."),
        (["train.enable_checkpointing=true"], "with a checkpoint, and resume on other machines."),
        (
            ["train.enable_checkpointing=false"],
            "without a checkpoint (train.enable_checkpointing is false), and start over on other machines.",
        ),
    ],
)
def test_the_message_of_a_stopped_host_states_the_steps(
    tmp_path: Path, defaults: Values, sets: list[str], outcome: str
) -> None:
    message = preemption_message(run_config(tmp_path, defaults, *LOCAL, *sets), 3)
    assert message == f"A host received a stop signal: all hosts stopped after 3 steps, {outcome}"


def test_a_gpu_that_jax_does_not_find_is_a_config_error() -> None:
    """A machine without a GPU: the fake replaces JAX, whose import takes seconds, with JAX's own message."""

    class JaxWithoutGpu:
        def devices(self, backend: str) -> None:
            raise RuntimeError(
                f"Unknown backend: '{backend}' requested, but no platforms that are instances of it exist."
            )

    with pytest.raises(
        ConfigError, match=r"slice\.accelerator: JAX finds no GPU on this machine \(.*exist\); check the"
    ):
        maxtext_setup.require_gpus(JaxWithoutGpu())
