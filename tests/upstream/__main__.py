"""Write tables.json.gz from the original CRDs (make tables)."""

from __future__ import annotations

import sys

from tests import upstream
from tests.upstream import tables


def main() -> None:
    folder = upstream.originals()
    if folder is None:
        sys.exit("The original CRDs are missing. Run make upstream, or set SLIPWAY_CRDS to their folder.")
    crds: tables.Crds = {}
    for project in sorted(upstream.GROUPS):
        found = {path.name.partition("-v")[2]: path for path in folder.glob(f"{project}-v*")}
        if not found:
            sys.exit(f"{folder} has no folder {project}-vVERSION.")
        crds[project] = {
            version: [tables.kept(crd) for crd in upstream.original_crds(found[version])]
            for version in sorted(found, key=lambda version: [int(part) for part in version.split(".")])
        }
    tables.write(tables.FILE, crds)
    count = sum(map(len, crds.values()))
    print(f"{tables.FILE.name}: {count} versions, {tables.FILE.stat().st_size} bytes, from {folder}", file=sys.stderr)


if __name__ == "__main__":
    main()
