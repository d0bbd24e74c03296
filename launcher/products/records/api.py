"""The records of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from launcher.config.values.files import chart_defaults, load
from launcher.config.values.tree import merge
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.records import collect, reader
from launcher.products.records.collect import Collected
from launcher.products.records.reader import Records


def read_records(folder: str | Path) -> Records:
    """Return the records below a folder or a URL of a bucket: one for each run, and a sentence for each file left out.

    Raises LauncherError if the folder cannot be read.
    """
    return reader.read(folder)


def record_runs(
    folder: str,
    *,
    target: Target = DEFAULT_TARGET,
    namespaces: Sequence[str] = (),
    files: Sequence[str] = (),
    storage: str | None = None,
    notify_secret: str = "",
) -> Collected:
    """Write the records of a cluster's runs below a folder or a URL of a bucket, merged with earlier ones.

    `namespaces` are read in addition to that of `target`, each with its own rights. `files` are values files with
    prices (`common.prices`). `storage` is the folder in which the storage of the runs is mounted here, if it is.
    With `notify_secret`, it notifies the addresses of this process, and those in the Secret of that name in each run's
    namespace, of the end of runs whose trainer did not.
    Raises LauncherError if no cluster is configured, or the records cannot be written.
    """
    spaces: list[str | None] = [*dict.fromkeys(namespaces)] or [target.namespace]
    clusters = [replace(target, namespace=space).cluster() for space in spaces]
    values = chart_defaults("run")
    if files:
        values = merge(values, load(files))
    prices = (values.tree.get("common") or {}).get("prices") or {}
    mounted = Path(storage).expanduser() if storage else None
    return collect.collect(
        clusters, folder, all_namespaces=target.all_namespaces, prices=prices, storage=mounted, secret=notify_secret
    )
