"""The state of the board in a terminal (`launcher top`), with keys for the commands of a run. Requires textual."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Input, Static

from launcher.backends.base import State
from launcher.cli.output import narrate, neutral
from launcher.k8s.target import Target
from launcher.products.fleet.board.state import Board

_QUEUES = ("QUEUE", "FLAVOR", "RESOURCE", "USED", "QUOTA", "BORROWED", "LENT", "FREE", "ADMITTED", "PENDING")
_RUNS = ("RUN", "TEAM", "STATE", "MACHINES", "STEP", "LOSS", "", "SPEED", "STARTS", "WHY")
_ENDED = {state.value for state in State if state.ended}
_WAITING = {State.QUEUED.value, State.PREEMPTED.value}
_BARS = "▁▂▃▄▅▆▇█"
_POINTS = 12  # losses in a row of the table
_MOST_RUNS = 500  # as on the page; the filter finds the others
_SLOW = 0.9
"""The speed, as a share of the forecast, below which a run is marked. The page has the same bound (board.js)."""
_COLOURS = {"failed": "red", "running": "green", "restarting": "yellow", "queued": "yellow", "preempted": "yellow"}


_Cell = tuple[str, str]  # the text, and its style
_Rows = dict[str, list[_Cell]]  # by the key of the row


class Top(App[None]):
    """Queues and runs, read like those of the board. Keys run `launcher` commands on the selected run."""

    CSS = """
    #queues { height: auto; max-height: 40%; }
    #runs { height: 1fr; }
    #notes { height: auto; max-height: 4; }
    Input { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "command('explain')", "explain"),
        Binding("l", "command('logs', '--tail', '500', '--follow')", "logs"),
        Binding("a", "command('attach')", "attach"),
        Binding("c", "command('cancel')", "cancel"),
        Binding("x", "ended", "ended runs"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("escape", "all", "all", show=False),
        Binding("q", "quit", "quit"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self.state: dict[str, Any] = {"queues": None, "runs": [], "notes": ["Reading…"], "pause": 5}
        self.with_ended = False
        self._rows: dict[str, _Rows] = {"queues": {}, "runs": {}}
        self._board = Board(target)
        self._left = threading.Event()

    def compose(self) -> ComposeResult:
        """Create the two tables, the filter, and the sentences about what could not be read."""
        yield DataTable(id="queues", cursor_type="none", show_cursor=False)
        yield DataTable(id="runs", cursor_type="row")
        yield Input(placeholder="name, team or queue; Enter selects a run, Escape shows all", id="filter")
        yield Static(id="notes")
        yield Footer()

    def on_mount(self) -> None:
        """Start to read. A thread that waits for the API server does not keep the program from ending."""
        self.query_one("#queues", DataTable).add_columns(*_QUEUES)
        self.query_one("#runs", DataTable).add_columns(*_RUNS)
        self.query_one("#runs").focus()
        self.draw()
        threading.Thread(target=self._follow, name="top", daemon=True).start()

    def on_unmount(self) -> None:
        """End the thread that reads."""
        self._left.set()

    def _follow(self) -> None:
        while not self._left.is_set():
            state = json.loads(self._board.text())
            try:
                self.call_from_thread(self._show, state)
            except RuntimeError:  # the program has just ended
                return
            self._left.wait(state["pause"])

    def _show(self, state: dict[str, Any]) -> None:
        self.state = state
        self.draw()

    def draw(self) -> None:
        """Show the state."""
        queues = self.query_one("#queues", DataTable)
        queues.display = bool(self.state["queues"])
        rows = [row for queue in self.state["queues"] or () for row in _queue_rows(queue)]
        self._rows["queues"] = _update(queues, self._rows["queues"], {str(at): row for at, row in enumerate(rows)})
        runs = self.shown()
        table = {_key(run): _run_row(run) for run in runs[:_MOST_RUNS]}
        self._rows["runs"] = _update(self.query_one("#runs", DataTable), self._rows["runs"], table)
        made = f"As of {self.state['made'][11:19]} UTC; " if "made" in self.state else ""
        count = f"{made}{len(runs)} of {len(self.state['runs'])} runs"
        self.query_one("#notes", Static).update(Text(neutral("\n".join([count, *self.state["notes"]]))))

    def shown(self) -> list[dict[str, Any]]:
        """Return the runs that the filter matches: running ones, then waiting ones, then those that have ended."""
        wanted = self.query_one("#filter", Input).value.lower()
        runs = [
            run
            for run in self.state["runs"]
            if (self.with_ended or run["state"] not in _ENDED)
            and any(wanted in run[key].lower() for key in ("name", "team", "queue"))
        ]
        order = dict.fromkeys(_WAITING, 1) | dict.fromkeys(_ENDED, 2)
        return sorted(runs, key=lambda run: (order.get(run["state"], 0), run["position"] or 0))

    def action_ended(self) -> None:
        """Show or hide the runs that have ended."""
        self.with_ended = not self.with_ended
        self.draw()

    def action_filter(self) -> None:
        """Ask for a part of a name."""
        self.query_one("#filter").display = True
        self.query_one("#filter").focus()

    def action_all(self) -> None:
        """Remove the filter."""
        self.query_one("#filter", Input).value = ""
        self.on_input_submitted()

    def on_input_changed(self) -> None:
        """Apply the filter while it is typed."""
        self.draw()

    def on_input_submitted(self) -> None:
        """Go back to the table, with the filter."""
        self.query_one("#filter").display = bool(self.query_one("#filter", Input).value)
        self.query_one("#runs").focus()

    def action_command(self, verb: str, *options: str) -> None:
        """Run a `launcher` command on the selected run in the terminal, and come back after it."""
        runs, table = self.shown(), self.query_one("#runs", DataTable)
        if not runs:
            return
        run = runs[table.cursor_row]
        command = [verb, run["name"], *options, *_place(run, self.target)]
        with self.suspend():
            narrate(f"$ launcher {' '.join(command)}")
            if verb != "cancel" or input("Cancel this run? [y/N]: ").strip().lower() in ("y", "yes"):
                # Ctrl-C ends the command, not this program. A handler, unlike SIG_IGN, is not inherited.
                before = signal.signal(signal.SIGINT, lambda *_: None)
                subprocess.run([sys.executable, "-P", "-m", "launcher", *command], check=False)
                signal.signal(signal.SIGINT, before)
            input("Press Enter to go back.")


def _update(table: DataTable[Text], before: _Rows, rows: _Rows) -> _Rows:
    """Make the table, which shows `before`, show these rows. To change cells costs much less than to build it."""
    if list(before) != list(rows):
        selected = table.cursor_row
        chosen = list(before)[selected] if len(before) > selected >= 0 else None
        table.clear()
        for key, row in rows.items():
            table.add_row(*(Text(neutral(text), style) for text, style in row), key=key)
        table.move_cursor(row=list(rows).index(chosen) if chosen in rows else min(selected, len(rows)))
        return rows
    columns = list(table.columns)
    for key, row in rows.items():
        for column, cell, old in zip(columns, row, before[key], strict=True):
            if cell != old:
                table.update_cell(key, column, Text(neutral(cell[0]), cell[1]), update_width=True)
    return rows


def _key(run: dict[str, Any]) -> str:
    return f"{run['kind'] == 'local'}/{run['namespace']}/{run['name']}"


def _place(run: dict[str, Any], target: Target) -> list[str]:
    if run["kind"] == "local":
        return ["--local"]
    context = [] if target.context is None else ["--context", target.context]
    return [*context, "--namespace", run["namespace"]]


def _cell(value: Any, style: str = "") -> _Cell:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value), style


def _queue_rows(queue: dict[str, Any]) -> list[list[_Cell]]:
    rows = []
    for at, quota in enumerate(queue["quotas"] or [{}]):
        name = "" if at else queue["name"] + (f" ({queue['inactive']})" if queue["inactive"] else "")
        cells = [quota.get(key) for key in ("flavor", "resource", "used", "nominal", "borrowed", "lent", "free")]
        counts = ["", ""] if at else [queue["admitted"], queue["pending"]]
        rows.append([_cell(name, "red" if queue["inactive"] else "bold"), *map(_cell, cells), *map(_cell, counts)])
    return rows


def _run_row(run: dict[str, Any]) -> list[_Cell]:
    state, speed, losses = run["state"], run.get("speed"), run.get("losses", [])[-_POINTS:]
    position = f" #{run['position']}" if run["position"] else ""
    step = "" if run["step"] is None else f"{run['step']}/{run['steps']}" if run["steps"] else run["step"]
    return [
        _cell(run["name"], "bold"),
        _cell(run["team"]),
        _cell(state + position, _COLOURS.get(state, "")),
        _cell(run["machines"]),
        _cell(step),
        _cell("" if run["loss"] is None else f"{run['loss']:.3f}"),
        _cell(spark(losses)),
        _cell("" if speed is None else f"{speed:.0%}", "red" if speed is not None and speed < _SLOW else ""),
        _cell(run["starts"]),
        _cell(run["reason"]),
    ]


def spark(values: list[float]) -> str:
    """Return a character for each value, from the lowest to the highest bar."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in values)
