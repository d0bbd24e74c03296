"""`python -m tests.tools helm` prints where the tool is, and builds it first where it must; `all`: every one of them.

`make test` does it for all before the first test: a cold build of Kubernetes takes longer than a test may.
"""

import sys

from tests.tools.go_tools import TOOLS, tool

if __name__ == "__main__":
    names = list(TOOLS) if sys.argv[1:] == ["all"] else sys.argv[1:]
    if not names or not set(names) <= set(TOOLS):
        sys.exit(f"usage: python -m tests.tools NAME…   (all, or of {', '.join(TOOLS)})")
    try:
        for name in names:
            print(tool(name))
    except RuntimeError as error:
        sys.exit(str(error))
