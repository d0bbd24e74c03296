"""The program of a plan: from the cache, or compiled now and cached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from launcher.config.plan import LaunchPlan
from launcher.products.planner.forecast import child
from launcher.products.planner.forecast.cache import Cache, folder
from launcher.products.planner.forecast.child import Limits
from launcher.products.planner.forecast.compile_progress import Silent, Watch
from launcher.products.planner.forecast.program import Program
from launcher.products.planner.forecast.request import Request, request

type Compile = Callable[..., Program]


@dataclass(frozen=True)
class Compiler:
    """Compiles programs. `fresh` also compiles programs that are in the cache. `run` does the compile."""

    cache: Cache = field(default_factory=lambda: Cache(folder()))
    limits: Limits = field(default_factory=Limits)
    fresh: bool = False
    watch: Watch = field(default_factory=Silent)
    run: Compile = child.compile_

    def program(self, plan: LaunchPlan, *, seconds: float | None = None, what: str = "") -> tuple[Program, bool]:
        """Return the plan's program, and whether it was in the cache.

        `seconds` is a further limit for this compile. `what` is its name in messages. Two simultaneous calls for the
        same program make one compile: the second call waits for the first. Raises LauncherError.
        """
        wanted = request(plan)
        program = None if self.fresh else self._cached(wanted, self.watch.print_line)
        if program is not None:
            return program, True
        self.watch.begin(what or describe(plan))
        waited = False

        def wait() -> None:
            nonlocal waited
            waited = True
            self.watch.phase("waiting")

        with self.cache.locked(wanted.key, wait):
            program = self._cached(wanted) if waited or not self.fresh else None
            if program is not None:
                return program, True
            program = self._compile(wanted, seconds)
            return (program if self.limits.finish else program.without_cycles()), False

    def _cached(self, wanted: Request, warn: Callable[[str], None] = lambda _: None) -> Program | None:
        """Return the cached program if it is compiled far enough. If it is compiled further, drop the surplus, so that
        all programs that are compared are computed in the same way."""
        program = self.cache.get(wanted, warn)
        if program is None or (self.limits.finish and not program.finished):
            return None
        return program if self.limits.finish else program.without_cycles()

    def has(self, key: str) -> bool:
        """Return whether that key is known to need no compile. A finished program is known only after reading."""
        return not self.fresh and not self.limits.finish and self.cache.path(key).exists()

    def _compile(self, wanted: Request, seconds: float | None) -> Program:
        limits = self.limits if seconds is None else replace(self.limits, seconds=min(seconds, self.limits.seconds))
        log = self.cache.folder / f"{wanted.key[:16]}.log"
        program = self.run(wanted, log, limits=limits, phase=self.watch.phase)
        try:
            self.cache.put(wanted, program)
        except OSError as error:
            self.watch.print_line(f"Warning: the forecast cannot be cached: {self.cache.folder}: {error.strerror}.")
        return program


def describe(plan: LaunchPlan) -> str:
    """Return the model and the chips in a few words: "llama3-8b on v6e 4x4"."""
    train, row = plan.config["train"], plan.config["accelerator"]
    model = train.get("model_name") or "default"
    count = int(plan.config["slice"].get("count") or 1)
    slices = f"{count} x " if count > 1 else ""
    return f"{model} on {slices}{row['name']} {row['topology']}".rstrip()
