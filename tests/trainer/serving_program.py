"""Serve a model, and then another one, with trainer.serving, and record what clients see: for test_serving.py.

It is a program of its own because Ray Serve needs a process that ends, and because vLLM has an environment of its own.
It prints its findings as JSON. The client is OpenAI's own package. It must be started in an empty folder.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import ray
import requests
import yaml
from ray import serve
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema
from transformers import PreTrainedTokenizerFast

KEY = "secret-key"
PROMPT = "def main("
MORE = {"model": "tiny", "prompt": PROMPT, "max_tokens": 16, "temperature": 0}
"""The requests of the clients that send one after the other."""


def deploy(config: dict[str, Any], folder: Path) -> None:
    """Apply Ray Serve's config as KubeRay does, with the model in `folder`, and wait until the model answers."""
    (application,) = config["applications"]
    application["args"]["model"] = str(folder)
    _get_global_client().deploy_apps(ServeDeploySchema.model_validate(config))
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        found = serve.status().applications.get("model")
        if found is not None and found.status == "RUNNING":
            return
        assert found is None or found.status != "DEPLOY_FAILED", found.message
        time.sleep(0.5)
    raise TimeoutError("The model does not run after 300 s.")


@dataclass
class Sent:
    """A request: when it was sent and answered, and the whole text of its answer, or the error."""

    began: float
    ended: float = 0.0
    text: str = ""
    error: str = ""


PAUSE = 0.3
"""Seconds of a client between two requests. Without it, the clients take the processor time that new replicas need."""


class Load:
    """Clients that send one request after the other, until they are stopped. Each second one streams its answers."""

    def __init__(self, client: openai.OpenAI, clients: int) -> None:
        self.client, self.ended = client, threading.Event()
        self.sent: list[Sent] = []
        self.threads = [threading.Thread(target=self._send, args=(number % 2 == 1,)) for number in range(clients)]
        for thread in self.threads:
            thread.start()

    def _send(self, stream: bool) -> None:
        while not self.ended.is_set():
            sent = Sent(time.monotonic())
            try:
                sent.text = self._streamed() if stream else self.client.completions.create(**MORE).choices[0].text
            except (openai.OpenAIError, httpx.TransportError) as error:
                sent.error = f"{type(error).__name__}: {error}"
            sent.ended = time.monotonic()
            self.sent.append(sent)
            self.ended.wait(PAUSE)

    def _streamed(self) -> str:
        parts = [part.choices[0] for part in self.client.completions.create(**MORE, stream=True)]
        # A part of an answer must not look like a whole one.
        end = parts[-1].finish_reason if parts else None
        return "".join(part.text for part in parts) + ("" if end else " (without an end)")

    def stop(self) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join()


def refusals(client: openai.OpenAI, url: str) -> dict[str, str]:
    """Return the type of the error of each request that must be refused, with its message."""
    wrong = openai.OpenAI(base_url=url, api_key="wrong", max_retries=0)
    calls: dict[str, Any] = {
        "wrong key": lambda: wrong.models.list(),
        "other model": lambda: client.completions.create(model="other", prompt="a"),
        "two answers": lambda: client.completions.create(model="tiny", prompt="a", n=2),
        "unknown field": lambda: client.completions.create(model="tiny", prompt="a", extra_body={"top_k": 5}),
        "empty prompt": lambda: client.completions.create(model="tiny", prompt=[]),
        "long prompt": lambda: client.completions.create(model="tiny", prompt="x " * 256),
        "no such token": lambda: client.completions.create(model="tiny", prompt=[100_000]),
        "no such role": lambda: client.chat.completions.create(
            model="tiny", messages=[{"role": "tool", "content": "a", "tool_call_id": "1"}]
        ),
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = "answered"
        except openai.APIStatusError as error:
            found[name] = f"{error.status_code} {error.body['message'] if isinstance(error.body, dict) else error.body}"
    bare = requests.post(f"{url}/completions", data="{", headers={"Authorization": f"Bearer {KEY}"}, timeout=60)
    found["no JSON"] = f"{bare.status_code} {bare.json()['error']['message']}"
    return found


def answers(client: openai.OpenAI, folder: Path) -> dict[str, Any]:
    """Return answers in all forms, with the tokens of their prompts."""
    common: dict[str, Any] = {"model": "tiny", "prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    whole = client.completions.create(**common)
    usage = {"include_usage": True}
    parts = list(client.completions.create(**common, stream=True, stream_options=usage))
    messages: Any = [{"role": "user", "content": "hello"}]
    chat = client.chat.completions.create(model="tiny", messages=messages, max_tokens=24, temperature=0)
    chunks = list(
        client.chat.completions.create(model="tiny", messages=messages, max_tokens=24, temperature=0, stream=True)
    )
    stop = whole.choices[0].text[5:8]
    stopped = client.completions.create(**common, stop=stop)
    sampled = [
        client.completions.create(model="tiny", prompt=PROMPT, max_tokens=24, temperature=1, top_p=0.9, seed=seed)
        for seed in (1, 1, 2)
    ]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    question = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return {
        "whole": whole.choices[0].text,
        "prompt": tokenizer.encode(PROMPT),
        "question": tokenizer.encode(question, add_special_tokens=False),
        "chat_tokens": chat.usage.completion_tokens if chat.usage else 0,
        "chat_reason": chat.choices[0].finish_reason,
        "reason": whole.choices[0].finish_reason,
        "usage": whole.usage.model_dump() if whole.usage else None,
        "streamed": "".join(part.choices[0].text for part in parts if part.choices),
        "parts": len(parts),
        "stream_usage": parts[-1].usage.model_dump() if parts[-1].usage else None,
        "chat": chat.choices[0].message.content,
        "chat_streamed": "".join(chunk.choices[0].delta.content or "" for chunk in chunks),
        "stop": stop,
        "stopped": stopped.choices[0].text,
        "stopped_reason": stopped.choices[0].finish_reason,
        "sampled": [each.choices[0].text for each in sampled],
        "full": client.completions.create(model="tiny", prompt=PROMPT, max_tokens=5000, temperature=0).model_dump()[
            "usage"
        ],
    }


def speed(client: openai.OpenAI, folder: Path) -> dict[str, list[float]]:
    """Return seconds per token of one client, and of mlx-lm's generate_step, in turns on the same machine."""
    code = (
        "import sys, time, mlx_lm, mlx.core as mx\n"
        "from mlx_lm.generate import generate_step\n"
        "model, tokenizer = mlx_lm.load(sys.argv[1])\n"
        "prompt = mx.array(tokenizer.encode(sys.argv[2]))\n"
        "for _ in sys.stdin:\n"
        "    began = time.monotonic()\n"
        "    tokens = len([int(token) for token, _ in generate_step(prompt, model, max_tokens=128)])\n"
        "    print((time.monotonic() - began) / tokens, flush=True)\n"
    )
    served, bare = [], []
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder), PROMPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        for _ in range(5):
            process.stdin.write("\n")
            process.stdin.flush()
            bare.append(float(process.stdout.readline()))
            began = time.monotonic()
            done = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=128, temperature=0)
            assert done.usage
            served.append((time.monotonic() - began) / done.usage.completion_tokens)
        process.stdin.close()
    return {"served": served[1:], "bare": bare[1:]}


def many(client: openai.OpenAI, expected: str) -> dict[str, Any]:
    """Return what 50 clients get that send a request at the same time."""
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        calls = [
            pool.submit(client.completions.create, model="tiny", prompt=PROMPT, max_tokens=24, temperature=0)
            for _ in range(50)
        ]
        texts = [call.result().choices[0].text for call in calls]
    return {"equal": sum(text == expected for text in texts), "seconds": time.monotonic() - began}


def replicas() -> list[int]:
    """Return the processes of the replicas that this program started."""
    parents, found = {}, []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if (entry / "cmdline").read_bytes().startswith(b"ray::ServeReplica:model:Model"):
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended

    def mine(pid: int) -> bool:
        while pid in parents:
            if (pid := parents[pid]) == os.getpid():
                return True
        return False

    return sorted(filter(mine, found))


def running() -> int:
    """Return how many replicas run, as Ray Serve counts them.

    Not by the names of processes: Ray renames a replica's process for each request, so a reader can miss one.
    """
    (deployment,) = serve.status().applications["model"].deployments.values()
    count: int = deployment.replica_states.get("RUNNING", 0)
    return count


def killed(client: openai.OpenAI) -> dict[str, Any]:
    """Return what clients see while one of two replicas is killed and replaced."""
    expected = client.completions.create(**MORE).choices[0].text
    load = Load(client, 8)
    time.sleep(3)
    before = running()
    at = time.monotonic()
    os.kill(replicas()[0], signal.SIGKILL)
    deadline = at + 180
    while time.monotonic() < deadline and running() == before:  # until Ray Serve has noticed
        time.sleep(0.1)
    while time.monotonic() < deadline and running() < before:
        time.sleep(0.5)
    time.sleep(3)
    load.stop()
    return {
        "before": before,
        "after": running(),
        "at": at,
        "expected": [expected],
        "sent": list(map(asdict, load.sent)),
    }


def updated(client: openai.OpenAI, config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return what clients see while the model is replaced by another one."""
    before = client.completions.create(**MORE).choices[0].text
    load = Load(client, 4)
    time.sleep(1)
    deploy(config, folder)
    time.sleep(2)
    load.stop()
    after = client.completions.create(**MORE).choices[0].text
    return {"expected": [before, after], "sent": list(map(asdict, load.sent))}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True, help="Ray Serve's config, as charts/serve renders it")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--models", type=Path, nargs=2, required=True, help="two folders, with a chat template")
    parser.add_argument("--speed", action="store_true", help="only compare the speed of the first model")
    arguments = parser.parse_args()
    config = yaml.safe_load(arguments.config.read_text())
    first, second = arguments.models
    variables = {"SLIPWAY_API_KEY": KEY, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.environ["PYTHONPATH"]}
    ray.init(num_cpus=4, include_dashboard=False, runtime_env={"env_vars": variables}, log_to_driver=False)
    config["http_options"] |= {"host": "127.0.0.1", "port": arguments.port}
    serve.start(http_options=config["http_options"])
    url = f"http://127.0.0.1:{arguments.port}/v1"
    client = openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=300)
    found: dict[str, Any] = {}
    deploy(config, first)
    if arguments.speed:
        found["speed"] = speed(client, first)
    else:
        found["health"] = requests.get(f"http://127.0.0.1:{arguments.port}/healthz", timeout=60).status_code
        found["models"] = [model.id for model in client.models.list()]
        found["answers"] = answers(client, first)
        found["refusals"] = refusals(client, url)
        found["many"] = many(client, found["answers"]["whole"])
        found["killed"] = killed(client)
        found["updated"] = updated(client, config, second)
    serve.shutdown()
    ray.shutdown()
    print("FOUND " + json.dumps(found))


if __name__ == "__main__":
    main()
