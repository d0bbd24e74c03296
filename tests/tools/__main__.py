"""`python -m tests.tools helm` prints the path of the tool. It builds the tool first if the cache does not have it.

`all` means every tool of the tests, `quick` the tools that `make test` needs, `release` those of `make release`. The
first build of Kubernetes takes longer than the time limit of a test, so make builds the tools before the first test.
"""

import sys

from tests.tools.go_tools import RELEASE, SLOW_TIERS, TOOLS, tool

if __name__ == "__main__":
    tested = [name for name in TOOLS if name not in RELEASE]
    sets = {"all": tested, "quick": [name for name in tested if name not in SLOW_TIERS]}
    sets["release"] = ["helm", "helm-docs", "registry", *RELEASE]
    names = [name for word in sys.argv[1:] for name in sets.get(word, [word])]
    if not names or not set(names) <= set(TOOLS):
        sys.exit(f"usage: python -m tests.tools NAME…   (all, quick, release, or of {', '.join(TOOLS)})")
    try:
        for name in names:
            print(tool(name))
    except RuntimeError as error:
        sys.exit(str(error))
