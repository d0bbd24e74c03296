"""Use the models of runs: generate text, evaluate them on tasks, and serve them on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.api._backend import backend_for
from launcher.api._values import Sets, load
from launcher.errors import UsageError
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.backends.base import Backend, RunStatus
    from launcher.config.plan import LaunchPlan
    from launcher.products.models.inference.chat import Chat
    from launcher.products.models.inference.evaluate import Results
    from launcher.products.models.inference.generate import Generated
    from launcher.products.models.inference.job import Submit
    from launcher.products.models.inference.serve import Served
    from launcher.products.models.inference.source import ClusterSource, Source


def generate(
    name: str,
    prompt: str,
    *,
    step: str | int | None = None,
    max_tokens: int = 100,
    temperature: float = 0.8,
    seed: int = 0,
    top_p: float = 1.0,
    stop: Sequence[str] = (),
    sets: Sets = (),
    on_text: Callable[[str], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    target: Target = DEFAULT_TARGET,
) -> Generated:
    """Generate text after a prompt, with a checkpoint of a run or with a Hugging Face folder.

    A name is that of a run, a sweep (its best run), a run's folder, or a Hugging Face folder (both with a slash in it).
    `step` is the number of a checkpoint, "best", or "last" (the default). The checkpoint of a run of this machine is
    exported once into its folder, and the model runs on this machine's CPU; for a run on a cluster, both happen in a
    job in its storage, in which `sets` override the run's values. `on_text` is called with each piece of the text as
    soon as it exists, and `say` with sentences about the progress. Raises LauncherError if the model does not fit this
    machine, or the prompt does not fit the model.
    """
    from launcher.products.models.inference import generate as generation

    options = generation.Options(max_tokens, temperature, seed, top_p, tuple(stop))
    source = _source(name, step, sets, target, say)
    return generation.generate(source, prompt, options, submit=_submit(target), on_text=on_text, say=say)


def evaluate(
    name: str,
    tasks: Sequence[str],
    *,
    step: str | int | None = None,
    tasks_folder: str | None = None,
    limit: int | None = None,
    sets: Sets = (),
    say: Callable[[str], None] = lambda _: None,
    target: Target = DEFAULT_TARGET,
) -> Results:
    """Evaluate a checkpoint of a run, or a Hugging Face folder, on tasks of lm-eval.

    `name`, `step` and `sets` are as in `generate`. `tasks_folder` has tasks of your own: YAML files, with paths
    relative to the folder. `limit` is the number of samples of each task. The results of a run are stored in its
    folder, where `report` finds them. Raises LauncherError if the model does not fit this machine, or a task does not
    exist or has no data.
    """
    from launcher.products.models.inference import evaluate as evaluation

    source = _source(name, step, sets, target, say)
    return evaluation.evaluate(source, tasks, tasks_folder=tasks_folder, limit=limit, submit=_submit(target), say=say)


def _source(
    name: str, step: str | int | None, sets: Sets, target: Target, say: Callable[[str], None]
) -> Source | ClusterSource:
    from launcher.products.models.inference.source import ClusterSource, resolve

    source = resolve(name, None if step is None else str(step), target, say)
    if not sets:
        return source
    if not isinstance(source, ClusterSource):
        raise UsageError("--set is for a run in a cluster; this one is on this machine.")
    return replace(source, extra=load([], sets))


def _submit(target: Target) -> Submit:
    """Return a function that submits a job to the cluster of `target`."""

    def submit(plan: LaunchPlan) -> tuple[Backend, RunStatus]:
        backend = backend_for(plan, target)
        return backend, backend.submit(plan, accept_changes=False).status

    return submit


def evaluations(name: str, *, target: Target = DEFAULT_TARGET) -> Results:
    """Return the results that a run already has, for each task those of its last checkpoint that was evaluated.

    A name is that of a run, its folder, or the URL of its folder in a bucket. Raises LauncherError if it has none.
    """
    from launcher.products.models.inference.evaluate import stored

    return stored(name, target)


@contextmanager
def serve(
    name: str,
    *,
    step: str | int | None = None,
    model: str | None = None,
    port: int = 0,
    context: int = 8192,
    key: str | None = None,
    say: Callable[[str], None] = lambda _: None,
    target: Target = DEFAULT_TARGET,
) -> Iterator[Served]:
    """Serve a checkpoint of a run, or a Hugging Face folder, with OpenAI's API on this machine, until the context ends.

    `name` and `step` are as in `generate`. The context yields what is served when the model has generated a token.
    `model` is the name of the model in requests (default: that of the run or of the folder), `port` the port on
    loopback (0: a free one), `context` the most tokens of a request and its answer, and `key` the API key (None: a new
    one). Raises LauncherError if the model does not fit this machine, or if the port or the name is already used.
    """
    from launcher.products.models.inference import serve as serving
    from launcher.products.models.inference.source import resolve

    source = resolve(name, None if step is None else str(step), target, say)
    wanted = serving.name_of(name) if model is None else model
    with serving.serve(source, model=wanted, port=port, context=context, key=key, say=say) as served:
        yield served


def chat(
    name: str | None = None,
    *,
    url: str | None = None,
    key_file: str | None = None,
    system: str = "",
    max_tokens: int | None = None,
    temperature: float = 0.8,
    on_text: Callable[[], None] = lambda: None,
) -> Chat:
    """Return a conversation with a model that `serve` serves on this machine, or that a URL serves.

    The API key for a URL is in `key_file` or SLIPWAY_API_KEY. `on_text` is called once if the model has no chat
    template and continues the text so far. Raises LauncherError if no such model is served.
    """
    from launcher.products.models.inference.chat import Chat, Options, connect

    record = connect(name, url, key_file=key_file)
    return Chat(record, Options(system, max_tokens, temperature), on_text)
