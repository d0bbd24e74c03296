"""`python -m tests.tools helm` prints where the tool is, and builds it first where it must."""

import sys

from tests.tools.go_tools import TOOLS, tool

if __name__ == "__main__":
    if len(sys.argv) < 2 or not set(sys.argv[1:]) <= set(TOOLS):
        sys.exit(f"usage: python -m tests.tools NAME…   (one of {', '.join(TOOLS)})")
    try:
        for name in sys.argv[1:]:
            print(tool(name))
    except RuntimeError as error:
        sys.exit(str(error))
