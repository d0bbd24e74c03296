"""The time of a cluster. The times in its objects are those of its own clock, which can differ from this machine's."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from launcher.formatting import duration
from launcher.k8s.client import Cluster

_TOLERATED = 60.0  # seconds: the header Date has whole seconds, and an answer can be slow


def of_cluster(cluster: Cluster) -> tuple[datetime, str]:
    """Return the time of the API server, and a sentence if this machine's clock differs by more than a minute, or "".

    The time is this machine's if the answer has none, as from a proxy that removes the header Date.
    """
    date = cluster.request("GET", "/version", raw=True).headers.get("date", "")
    here = datetime.now(UTC)
    try:
        there = parsedate_to_datetime(date).astimezone(UTC)
    except ValueError:
        return here, ""
    ahead = (here - there).total_seconds()
    if abs(ahead) <= _TOLERATED:
        return here, ""
    differs = f"{duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} the API server's"
    return there, f"The clock of this machine is {differs}; times are compared with the API server's clock."
