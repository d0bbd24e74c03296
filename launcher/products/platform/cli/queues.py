from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from launcher import api, formatting
from launcher.cli import colour, output
from launcher.cli.options import format_option, target_options
from launcher.diagnose.explain.formatting import number, resource_word
from launcher.errors import UsageError
from launcher.k8s.target import Target
from launcher.products.platform.queues import QueueUse, TeamUse, shown


@click.command()
@target_options
@click.option(
    "-A", "--all-namespaces", "everywhere", is_flag=True, help="Show all queues, and the use of all namespaces."
)
@format_option
def command(target: Target, everywhere: bool, form: str) -> None:
    """Show quota, use and waiting runs of the queues, by queue and team.

    The first table has the ClusterQueues of the namespace's LocalQueues. QUOTA is a queue's own. USED is what its runs
    hold, and BORROWED the part of it above QUOTA. LENT is the part of its own unused quota that runs of other queues
    hold. FREE is what a run can get now without a preemption, including what the queue may borrow. RUNS are admitted,
    and WAITING are not.

    The second table has the use of each namespace. For flavors with chips, only the chips are shown; -o json and yaml
    have all resources.
    """

    if everywhere and target.namespace is not None:
        raise UsageError("--all-namespaces cannot be used with --namespace.")
    queues = api.queues(target=replace(target, all_namespaces=everywhere))
    if queues.cluster_queues is None:
        output.narrate("You may not list ClusterQueues, so their quota is not shown, only the use of LocalQueues.")
    if not queues.local_queues:
        where = "cluster has" if everywhere else f"namespace {target.cluster().namespace} does not exist, or has"
        output.narrate(f"The {where} no LocalQueue{'' if everywhere else '; -A shows all queues'}.")
    tables = [_queues(queues.cluster_queues or ()), _teams(queues.local_queues)]
    output.emit(queues.as_json(), form, "\n\n".join(filter(None, tables)), paint=colour.tables)


def _queues(queues: Sequence[QueueUse]) -> str:
    if not queues:
        return ""
    states = any(queue.inactive for queue in queues)
    rows = []
    for queue in queues:
        first = [queue.name, queue.cohort, *([queue.inactive or "active"] if states else [])]
        counts = [str(queue.admitted), str(queue.pending)]
        quotas = shown(queue.quotas, lambda row: (row.flavor, row.resource))
        for row in quotas:
            amounts = (row.nominal, row.used, row.borrowed, row.lent, row.free)
            cells = [row.flavor, resource_word(row.resource), *(number(row.resource, each) for each in amounts)]
            rows.append([*first, *cells, *counts])
            first, counts = [""] * len(first), ["", ""]
        if not quotas:
            rows.append([*first, *[""] * 7, *counts])
    titles = ["QUEUE", "COHORT", *(["STATE"] if states else []), "FLAVOR", "RESOURCE"]
    return formatting.table([[*titles, "QUOTA", "USED", "BORROWED", "LENT", "FREE", "RUNS", "WAITING"], *rows])


def _teams(queues: Sequence[TeamUse]) -> str:
    if not queues:
        return ""
    rows = []
    for queue in queues:
        used = shown(queue.used.items(), lambda item: item[0])
        words = [f"{number(what[1], amount)} {resource_word(what[1])} of {what[0]}" for what, amount in used]
        rows.append(
            [
                queue.namespace,
                queue.local_queue,
                queue.cluster_queue,
                ", ".join(words) or "nothing",
                str(queue.admitted),
                str(queue.pending),
            ]
        )
    return formatting.table([("NAMESPACE", "LOCAL QUEUE", "QUEUE", "USED", "RUNS", "WAITING"), *rows])
