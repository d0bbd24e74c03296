"""A plan's program: from the cache, or compiled now and kept there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from launcher.config.plan import LaunchPlan
from launcher.forecast import child
from launcher.forecast.cache import Cache, folder
from launcher.forecast.child import Limits
from launcher.forecast.program import Program
from launcher.forecast.request import Request, request
from launcher.forecast.watch import Silent, Watch

type Compile = Callable[..., Program]


@dataclass(frozen=True)
class Compiler:
    """`fresh` compiles what the cache has, too; `run` is the compile."""

    cache: Cache = field(default_factory=lambda: Cache(folder()))
    limits: Limits = field(default_factory=Limits)
    fresh: bool = False
    watch: Watch = field(default_factory=Silent)
    run: Compile = child.compile_

    def program(self, plan: LaunchPlan, *, seconds: float | None = None, what: str = "") -> tuple[Program, bool]:
        """The plan's program, and whether it was in the cache; `seconds` bounds this compile further, `what` calls it.

        Two at once for the same program make one compile: the second waits for the first. Raises LauncherError.
        """
        wanted = request(plan)
        found = None if self.fresh else self._cached(wanted, self.watch.say)
        if found is not None:
            return found, True
        self.watch.begin(what or describe(plan))
        waited = False

        def wait() -> None:
            nonlocal waited
            waited = True
            self.watch.phase("waiting")

        with self.cache.locked(wanted.key, wait):
            found = self._cached(wanted) if waited or not self.fresh else None
            if found is not None:
                return found, True
            found = self._compile(wanted, seconds)
            return (found if self.limits.finish else found.without_cycles()), False

    def _cached(self, wanted: Request, warn: Callable[[str], None] = lambda _: None) -> Program | None:
        """What is in the cache, if it has come as far as it is to come; from further on no more than that, so that what
        is compared is reckoned alike."""
        found = self.cache.get(wanted, warn)
        if found is None or (self.limits.finish and not found.finished):
            return None
        return found if self.limits.finish else found.without_cycles()

    def has(self, key: str) -> bool:
        """Whether the program of that key is known to cost no compile; of finished ones only reading it would tell."""
        return not self.fresh and not self.limits.finish and self.cache.path(key).exists()

    def _compile(self, wanted: Request, seconds: float | None) -> Program:
        limits = self.limits if seconds is None else replace(self.limits, seconds=min(seconds, self.limits.seconds))
        log = self.cache.folder / f"{wanted.key[:16]}.log"
        found = self.run(wanted, log, limits=limits, phase=self.watch.phase)
        try:
            self.cache.put(wanted, found)
        except OSError as error:
            self.watch.say(f"Warning: the forecast is not kept: {self.cache.folder}: {error.strerror}.")
        return found


def describe(plan: LaunchPlan) -> str:
    """The model and the chips, in a few words: "llama3-8b on v6e 4x4"."""
    train, row = plan.config["train"], plan.config["accelerator"]
    model = train.get("model_name") or "default"
    count = int(plan.config["slice"].get("count") or 1)
    slices = f"{count} x " if count > 1 else ""
    return f"{model} on {slices}{row['name']} {row['topology']}".rstrip()
