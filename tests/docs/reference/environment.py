"""The page on the default values files and the environment variables. A test compares it with what the code reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from tests.docs.reference.parts import code, page, table

_ORDER = """\
Values that you need in every run, such as your team, its queue, the image and the storage, can be in a file that the
command reads without `-f`.
`launcher init` writes such a file for your namespace. The values are merged in this order; later ones
override earlier ones:"""

_LAYERS = (
    ("the chart's defaults", "`charts/run/values.yaml`"),
    ("your defaults", "`launcher.yaml` in `$XDG_CONFIG_HOME/slipway`, or in `~/.config/slipway`"),
    ("the project's defaults", "`launcher.yaml` in the current folder, or in its nearest parent that has one"),
    ("`SLIPWAY_VALUES`", "values files or presets, separated by colons, such as `clusters/gke-standard:~/team.yaml`"),
    ("`-f FILE`", "values files or presets, in the given order; the `-f` may be left out"),
    ("`--set KEY=VALUE`", "single values, in the given order"),
)

_NOTES = """\
`submit`, `render`, `values`, `check`, `forecast`, `diff` and `install ray-cluster` read the defaults, and print on
stderr which files these are. The queues of a platform have other keys, so `queues` reads none. `--no-defaults` ignores
your files, the project's file and `SLIPWAY_VALUES`. `launcher values --origins` shows which file sets each key, and
errors name the file and the line. The [Python API](python-api.md) reads only the files that it is given;
`api.default_files()` returns the defaults."""

_SAFETY = """\
Values can name programs to run on this machine, so a project's file must come from you. `launcher` ignores the file,
and prints the reason, if the file or its folder belongs to another user who is not root, or if every user can write to
it. To use such a file, name it with `-f`. Git has the same rule for its config (`safe.directory`)."""

COMMAND = {
    "SLIPWAY_VALUES": "values files and presets to read before every `-f`, separated by colons",
    "SLIPWAY_NO_DEFAULTS": "if it is not empty, the command reads no default values files, as with `--no-defaults`",
    "XDG_CONFIG_HOME": "the folder of your config; `slipway/launcher.yaml` in it has your defaults (default: "
    "`~/.config`)",
    "SLIPWAY_HOME": "the folder of the runs on this machine (default: `~/.slipway`)",
    "SLIPWAY_CACHE": "the folder of the forecasts (default: `slipway` in the folder of your caches)",
    "XDG_CACHE_HOME": "the folder of your caches (default: `~/.cache`)",
    "SLIPWAY_HELM": "the path of Helm (default: `helm` on the `PATH`)",
    "SLIPWAY_GCLOUD": "the path of gcloud, for `cluster` (default: `gcloud` on the `PATH`); gcloud's own "
    "variables apply, too",
    "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "if it is `true`, `cluster` sends no access token, as gcloud; for tests",
    "SLIPWAY_API_KEY": "the API key of `serve`, and of `chat --url`",
    "SLIPWAY_GRACE_SECONDS": "the seconds that a local run has to write a checkpoint after it receives a signal to "
    "stop; the trainer receives the number, too",
    "KUBECONFIG": "the kubeconfig files, as for kubectl; `/dev/null` means that there is no cluster",
    "HTTPS_PROXY": "the proxy for API servers with `https://`, as for kubectl (see [Connect to a cluster]"
    "(../how-to/connect-to-a-cluster.md))",
    "HTTP_PROXY": "the proxy for API servers with `http://`",
    "NO_PROXY": "hosts, domains and networks to which the command connects without the environment's proxy",
    "HELM_KUBECONTEXT": "`install` and `uninstall` refuse it in a pod without a kubeconfig",
    "https_proxy": "the same as `HTTPS_PROXY`, which has precedence",
    "http_proxy": "the same as `HTTP_PROXY`, which has precedence",
    "no_proxy": "the same as `NO_PROXY`, which has precedence",
    "KUBERNETES_SERVICE_HOST": "Kubernetes sets it in pods; without a kubeconfig, the command then uses the cluster of "
    "its pod",
    "POD_NAMESPACE": "in a pod without a kubeconfig: the namespace, if it is not that of the pod",
    **dict.fromkeys(
        (
            "HELM_KUBEAPISERVER",
            "HELM_KUBETOKEN",
            "HELM_KUBEASUSER",
            "HELM_KUBEASGROUPS",
            "HELM_KUBECAFILE",
            "HELM_KUBETLS_SERVER_NAME",
            "HELM_KUBEINSECURE_SKIP_TLS_VERIFY",
        ),
        "`install` and `uninstall` refuse it, because Helm would connect in another way than the launcher",
    ),
    "DOCKER_CONFIG": "the folder of Docker's `config.json` with the passwords of registries, for `image build`",
    "XDG_RUNTIME_DIR": "the folder of Podman's passwords of registries (`containers/auth.json`), for `image build`",
    "REGISTRY_AUTH_FILE": "Podman's file of passwords of registries, for `image build`",
    "TMPDIR": "the folder of temporary files; `image build` needs some GB there",
    "HF_TOKEN": "the token for Hugging Face, for `import`, `export` and data sets; in pods, for a run",
    "NO_COLOR": "if it is not empty, the command prints no colours",
    "TERM": "if it is `dumb`, the command prints no colours",
    "PYTHONPATH": "a local run's trainer receives it, after the trainer's own folder",
    "_LAUNCHER_COMPLETE": "the shell sets it for a completion",
}
"""The variables that a user of the command can set."""

TRAINER = {
    "SLIPWAY_COORDINATOR": "without Ray: host or host:port of process 0; a JobSet sets it",
    "SLIPWAY_HOST_INDEX": "without Ray: this process's number, from 0",
    "JOB_COMPLETION_INDEX": "Kubernetes sets it in the pods of a JobSet: the host in its slice",
    "JOB_INDEX": "the chart sets it in the pods of a JobSet: the slice",
    "SLIPWAY_NOTIFY": "the addresses of notifications, one per line; the chart sets it from `notify.secret`",
    "SLIPWAY_NOTIFY_FILE": "the path of a file with more addresses",
    "SLIPWAY_RUN_ID": "on this machine: the attempt to which the process belongs; set by the supervisor of a local run",
    "SLIPWAY_SPARES": "0: no process waits for a failure with its imports done; set it in `worker.env` if memory is "
    "short ([what it saves](../explanation/benchmarks.md#the-time-of-a-restart))",
    "SLIPWAY_RESTARTS_LEFT": "the restarts that the run has left; set by the supervisor of a local run",
    "SLIPWAY_EXIT_MESSAGE_FD": "the file descriptor for the reason of a failure; set by the supervisor of a local run",
    "SLIPWAY_NODE": "the name of the Kubernetes node, for the event `slow_host`; the chart sets it; without it, empty",
    "SLIPWAY_ATTEMPT": "the number of the attempt, under which the output is kept; the chart sets it; without it, 1",
    "SLIPWAY_POD_LOG": "the file that receives the output of a RayJob; the chart sets it on the head",
    "RAY_ADDRESS": "Ray sets it in the jobs of a cluster; without it, the trainer starts Ray on this machine",
    "RAY_AUTH_TOKEN": "the token of Ray; the trainer creates one for a Ray of its own",
    "RAY_JOB_CONFIG_JSON_ENV_VAR": "Ray sets it: the metadata of the job",
    "HF_HOME": "`launcher check` looks in its folder hub for the tokenizers of runs in a cluster",
    "HF_HUB_CACHE": "the same, instead of hub in HF_HOME",
    "HF_HUB_OFFLINE": "`python -m trainer.generate` sets it: a model in a folder needs nothing from Hugging Face's Hub",
    "DISABLE_MULTIPROC": "`python -m trainer.evaluate` sets it: lm-eval then starts no processes of its own",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "an export sets it, because tokenizers need no PyTorch",
    "TPU_MULTIHOST_BACKEND": "a replica of vLLM on several TPU hosts sets it to `ray`, so that all of them are used",
    "JAX_PLATFORMS": "JAX's devices, such as `cpu`; with `proxy`, the trainer uses Pathways",
}
"""The variables that the trainer reads. Slipway, Ray and Kubernetes set them."""

PROGRAM = {
    "SLIPWAY_RUN_FOLDER": "the run's folder",
    "SLIPWAY_HOST_INDEX": "the number of the host, from 0",
    "SLIPWAY_HOSTS": "the number of hosts",
    "SLIPWAY_RUN_ID": "on this machine: the attempt to which the process belongs",
}
"""The variables that a program (`run.command`) receives."""


def text() -> str:
    return page(
        "Defaults and environment variables",
        "tests/docs/reference/environment.py",
        "## Values that apply to every run",
        " ".join(_ORDER.split("\n")),
        table(("layer", "what"), _LAYERS),
        " ".join(_NOTES.split("\n")),
        " ".join(_SAFETY.split("\n")),
        "## Variables of the command",
        _table(COMMAND),
        "A local run does not receive the shell's variables of Ray, JAX and XLA (`RAY_…` except `RAY_TMPDIR`, `JAX_…`, "
        "`XLA_…`), which would select another cluster or other devices; set them in `worker.env`. It receives proxies "
        "(`https_proxy`), but connects to this machine without them.",
        "## Variables of the trainer",
        "Slipway, Ray or Kubernetes sets these variables. You need them only to "
        "[run the trainer by itself](../how-to/run-the-trainer.md). To set a variable in the pods of a run, use "
        "`worker.env` or `worker.secretEnv` ([run values](run-values.md#worker)).",
        _table(TRAINER),
        "## Variables of a program",
        "A program (`run.command`) receives these variables:",
        _table(PROGRAM),
    )


def _table(rows: dict[str, str]) -> str:
    return table(("variable", "meaning"), ((code(name), about) for name, about in rows.items()))


def read_by(*packages: Path) -> dict[str, str]:
    """Return the environment variables that the code of the packages reads, with a file that reads each."""
    files = list(chain.from_iterable(package.rglob("*.py") for package in packages))
    trees = {str(file): ast.parse(file.read_text(encoding="utf-8")) for file in files}
    imported = [(name, text) for tree in trees.values() for name, text in _constants(tree) if name.isupper()]
    found: dict[str, str] = {}
    for file, tree in trees.items():
        for key in _keys(tree):
            if isinstance(key, ast.Name):
                texts = [text for name, text in (*_constants(tree), *imported) if name == key.id]
            else:
                texts = _texts(key)
            found |= dict.fromkeys(texts, file)
    return found


def _keys(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield each expression that is a key of os.environ: in get, getenv, setdefault, pop, a subscript, or `in`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (
            *("os.environ.get", "os.environ.setdefault", "os.environ.pop", "os.getenv"),
        ):
            yield node.args[0]
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
            yield node.slice
        elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "os.environ":
            yield node.left


def _constants(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each name of a text, with the text: of constants, and of loops over texts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield from ((node.targets[0].id, text) for text in _texts(node.value))
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Tuple):
            yield from ((node.target.id, text) for each in node.iter.elts for text in _texts(each))


def _texts(node: ast.expr) -> list[str]:
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
