"""MaxText's main under JaxTrainer, as tutorials show it. `make bench` compares the trainer under Ray with it."""

from __future__ import annotations

import sys
import tempfile
from typing import Any


def loop(settings: dict[str, Any]) -> None:
    from absl import flags
    from maxtext.trainers.pre_train import train

    flags.FLAGS(["bench"])
    train.main(settings["argv"])


def main() -> None:
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.jax import JaxConfig, JaxTrainer

    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        JaxTrainer(
            loop,
            train_loop_config={"argv": sys.argv},
            jax_config=JaxConfig(use_tpu=True),
            scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(
                name="bench", storage_path=folder, worker_runtime_env={"env_vars": {"JAX_PLATFORMS": "cpu"}}
            ),
        ).fit()


if __name__ == "__main__":
    main()
