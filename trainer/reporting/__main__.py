"""python -m trainer.reporting: send the notifications on stdin. Imports only the standard library.

stdin is a JSON object: `addresses`, the text of a Secret, which is added to the addresses of the environment, and
`messages`. stdout is a JSON object: `problems`, a sentence for each address that is not valid and for each notification
that was not sent.
"""

from __future__ import annotations

import json
import sys

from trainer.reporting import addresses
from trainer.reporting.notifier import Notifier

_PAUSES = (1.0, 4.0)
_SECONDS = 120.0


def main() -> int:
    """Return 0, also if a notification was not sent: `problems` has the reason."""
    request = json.load(sys.stdin)
    known, events, problems = addresses.from_environment(str(request["addresses"]))
    notifier = Notifier(known, None, pauses=_PAUSES, report=problems.append)
    for message in request["messages"]:
        if message["event"] in events:
            notifier.put(f"{message['event']} of {message['run']}", message)
    if not notifier.close(_SECONDS):
        problems.append(f"Not all notifications were sent within {_SECONDS:g} s.")
    sys.stdout.write(json.dumps({"problems": problems}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
