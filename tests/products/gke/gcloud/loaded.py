"""Runs commands of the real gcloud, each in a new fork of this process, which has imported gcloud's modules.

A start of gcloud takes 0.7 s of processor time, nearly all of it for imports. gcloud's own Python runs this program:
PYTHON -S loaded.py FOLDER, with the folder of gcloud.py. Each line of the input has the arguments and the environment
of a command as JSON, and each line of the output its exit code and its stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
import traceback
from typing import Any


def run(folder: str, arguments: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run one command in a child. Imports the modules that the child has imported, for the next commands."""
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryFile("w+") as imported:
        pid = os.fork()
        if pid == 0:
            _child(folder, arguments, environment, errors.fileno(), imported)
        _, status = os.waitpid(pid, 0)
        errors.seek(0)
        imported.seek(0)
        found = json.loads(imported.read() or '{"path": [], "modules": []}')
        sys.path[:] = found["path"] or sys.path
        for name in found["modules"]:
            if name not in sys.modules:
                try:
                    importlib.import_module(name)
                except ImportError:  # not every name is that of a file, for example six.moves
                    continue
        return {"code": os.waitstatus_to_exitcode(status), "err": errors.read()}


def _child(folder: str, arguments: list[str], environment: dict[str, str], errors: int, imported: Any) -> None:
    """Become gcloud. Does not return."""
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, target in enumerate((nothing, nothing, errors)):
            os.dup2(target, number)
        signal.alarm(120)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[0] = folder
        sys.argv = [os.path.join(folder, "gcloud.py"), *arguments]  # noqa: PTH118 - gcloud expects text
        importlib.import_module("gcloud").main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else bool(end.code)
    except BaseException:  # a bug of gcloud, or of this program
        traceback.print_exc()
    sys.stderr.flush()
    json.dump({"path": sys.path, "modules": list(sys.modules)}, imported)
    imported.flush()
    os._exit(code)


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(run(sys.argv[1], request["arguments"], request["environment"])), flush=True)
