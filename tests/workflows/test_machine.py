"""The machine of a full run: a user without privileges, with sudo."""

from __future__ import annotations

import os
from pathlib import Path

from tests.prerequisites import require
from tests.workflows.machine import Machine, sudo


def test_a_command_has_no_privileges_but_sudo(tmp_path: Path) -> None:
    require(os.geteuid() == 0, "The test replaces sudo. Run it as root.")
    machine = Machine(tmp_path, full=True)
    environment = {**machine.variables, "PATH": os.pathsep.join(machine.path), "MORE": "kept"}
    script = """
        exec >"$RUNNER_TEMP/printed"
        id --user
        sudo id --user
        sudo sh -c 'echo "$MORE,$HOME,$SUDO_UID"'
        sudo --preserve-env sh -c 'echo "$MORE,$HOME,$SUDO_UID"'
        PATH=$HOME:$PATH sudo --preserve-env sh -c 'echo "$PATH"'
        PATH=$HOME:$PATH sudo --preserve-env env PATH="$HOME" /bin/sh -c 'echo "$PATH"'
        sudo sh -c 'exit 7' || echo $?
        sudo --unknown true || echo $?
        mount -t tmpfs none "$HOME" 2>/dev/null || echo refused
    """
    with sudo(machine):
        assert machine.run(["sh", "-ec", script], environment, machine.workspace, 60) == 0
    printed = (machine.temp / "printed").read_text().splitlines()
    system = f"{machine.programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    home = str(machine.home)
    assert printed == ["1001", "0", ",/root,1001", f"kept,{home},1001", system, home, "7", "1", "refused"]
