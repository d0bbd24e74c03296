from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher.commands._options import format_option, run_argument, run_place_options

if TYPE_CHECKING:
    from launcher.place import Place


@click.command()
@run_argument
@run_place_options
@format_option
def command(name: str, place: Place, form: str) -> None:
    """Stop a run, or all runs of a sweep, and free all that it holds.

    Its record and checkpoints stay: submitting it again resumes it. A run that has ended is left as it is.
    """
    from launcher import api, output
    from launcher.runs import Narrates, RunStatus

    backend, before = api.resolve(name, place)
    if isinstance(backend, Narrates):
        backend.narrate = output.narrate
    if not isinstance(before, RunStatus):
        from launcher.commands import _sweep

        _sweep.cancel(before, backend, form)
        return
    name = before.name
    if not before.state.ended:
        of = f" ({backend.where})" if backend.where else ""
        output.narrate(f'Ending the run "{name}"{of}…')
    status = backend.cancel(name)
    output.narrate(f'The run "{name}" ' + ("is cancelled." if status.state == "cancelled" else f"had {status.state}."))
    output.emit(status.as_json(), form, "")
