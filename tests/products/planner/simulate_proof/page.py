"""docs/reference/simulate-proof.md: how well the simulation agrees with recordings of the real Kueue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from launcher.products.planner.scheduler.simulation import simulate
from launcher.products.planner.simulation.event_lines import as_line
from launcher.products.planner.simulation.scenario_file import read_scenarios
from tests.products.planner.simulate_proof.agreement import CLOSE, NOISE, Agreement, compare
from tests.products.planner.simulate_proof.delays import Delays, Explanation, load
from tests.products.planner.simulate_proof.windows import WINDOW, Windows, windows

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "simulate-proof.md"
SETS = {"classic": "without fair sharing", "fair": "with fair sharing"}

_HEAD = f"""# The simulation compared with Kueue

`make simulate-proof` writes this page. It compares `launcher simulate` with {{count}} random scenarios that Kueue
0.19.2 played on a real API server: {{runs}} runs in one to four queues, with cohorts, nested cohorts, limits,
preemption, strict and best-effort queues, and up to three flavors. The simulation gets the objects, and for each run
its queue, priority, chips, arrival and duration, and how long it takes to stop. It does not get what happened.

| Scenarios | Whole scenarios that agree | With delays | Starts within {CLOSE:g} s | Next {WINDOW:g} s from a state |
|---|---|---|---|---|
{{rows}}

- **Whole scenarios that agree**: the same runs are admitted in the same order on the same flavors, with the same
  preemptions, from the first event to the last. Events that are closer than {NOISE:g} s to each other may have another
  order.
- **With delays**: the same, if the simulation also gets the delays of the machine that explain the recording (below).
- **Starts within {CLOSE:g} s**: of all admissions of all scenarios.
- **Next {WINDOW:g} s from a state**: the simulation starts again every {WINDOW:g} s from the runs that really
  held quota and that really waited. The share of the admissions (with their flavors) and evictions that it has within
  {CLOSE:g} s.

## Why whole scenarios differ

The recordings come from a small busy machine. Some decisions there take 20 ms, others several seconds: in sim-11-214,
r18 starts 6.8 s after r7 ended, and nothing else happens in between. In a full queue, one start that is 50 ms later
changes who gets the quota that is released at the same moment, and with that everything after it. Kueue also compares
times in whole seconds, and then the random UIDs of two Workloads.

A difference shows such a delay or a wrong rule. To distinguish them, a search changes only delays: when a cycle of the
scheduler starts, when an arrival, an end or a release reaches it, when set-aside runs are tried again, when a decision
is in the API server, and the order of runs of the same second. With the delays that were found, {{explained}} agree
from the first to the last event. They are in tests/products/planner/simulate_proof/delays.json, without those that are
not needed: {{delays}} in all, the median is {{median:.2f}} s and the longest {{longest:.1f}} s. A test simulates each
scenario with them.

A delay does not change what a rule selects in a state, but many delays can hide a wrong rule. To measure this, the
search was repeated with one rule changed, with at most 600 simulations for each scenario without fair sharing. With the
rules as they are, it explained 45 of the 51. If the older of two equal candidates is preempted, it explained 20; if a
waiting head keeps no quota for itself, 41; if runs are set aside one by one, 43; if a run that waits for preemptions
does not stay first in its queue, 47. So these scenarios show little about the last two rules.

Single scenarios are sharper. Until 0.19.3, a run whose preemption did not help stays first in its queue: with this
rule, sim-23-91 is explained after 500 simulations; without it, not after 20,000. Since 0.19.1, Kueue can nominate a run
again if another one takes its preemption targets (the feature gate RecomputeAssignmentUponPreemptionTargetsOverlap,
which is off by default): without this, sim-11-173 is explained after 60 simulations; with it, not after 14,000.

In sim-11-201 and sim-11-215, Kueue admitted a run again before its Job had stopped, and the end of the stop took the
new admission back without an eviction. The simulation has no such fault; the explanation takes it from the recording.

| Scenario | One difference without the delays | Delays that explain it | Longest |
|---|---|---|---|
{{differences}}
"""


@dataclass(frozen=True, slots=True)
class Proof:
    """The results for the scenarios of one file."""

    name: str
    runs: int
    agreements: Sequence[Agreement]
    steps: Sequence[Windows]
    explained: Mapping[str, Delays]

    @property
    def whole(self) -> int:
        return sum(each.agrees for each in self.agreements)

    @property
    def with_delays(self) -> int:
        """The number of scenarios that agree, or agree with the delays that were found."""
        return sum(each.agrees or each.scenario in self.explained for each in self.agreements)

    @property
    def starts(self) -> float:
        """The share of the starts that are close."""
        return sum(each.close_starts for each in self.agreements) / sum(each.admissions for each in self.agreements)

    @property
    def decisions(self) -> float:
        """The share of the decisions in all windows that the simulation has."""
        return sum(each.found for each in self.steps) / sum(each.decisions for each in self.steps)

    @property
    def error(self) -> float:
        """The median difference of a start, in seconds."""
        return median(abs(error) for each in self.agreements for error in each.errors)


def proof(path: Path, name: str) -> Proof:
    """Compare the scenarios of a file."""
    lines = list(read_scenarios(path))
    known = load()
    explanations = [Explanation(line, known[line.id]) for line in lines if line.id in known]
    return Proof(
        name,
        sum(len(line.scenario.jobs) for line in lines),
        [compare(line.raw, as_line(line.id, line.scenario, simulate(line.scenario))) for line in lines],
        [windows(line.raw, line.scenario) for line in lines],
        {each.line.id: each.delays for each in explanations if each.holds},
    )


def text(proofs: Iterable[Proof]) -> str:
    """Return the page."""
    proofs = list(proofs)
    rows = [
        f"| {len(each.agreements)} {SETS[each.name]} ({each.runs} runs) | {each.whole} | {each.with_delays} | "
        f"{each.starts:.0%} (median difference {each.error:.2f} s) | {each.decisions:.0%} |"
        for each in proofs
    ]
    differences = [
        f"| {agreement.scenario} | {agreement.differences[0]} | {_delays(each.explained.get(agreement.scenario))} |"
        for each in proofs
        for agreement in sorted(each.agreements, key=lambda one: one.scenario)
        if agreement.differences
    ]
    seconds = [abs(delay) for each in proofs for found in each.explained.values() for delay in found.values()]
    count = sum(len(each.agreements) for each in proofs)
    with_delays = sum(each.with_delays for each in proofs)
    return _HEAD.format(
        count=count,
        explained=f"all {count} scenarios" if with_delays == count else f"{with_delays} of the {count} scenarios",
        delays=len(seconds),
        median=median(seconds),
        longest=max(seconds),
        runs=f"{sum(each.runs for each in proofs):,}",
        rows="\n".join(rows),
        differences="\n".join(differences),
    )


def _delays(found: Delays | None) -> str:
    if found is None:
        return "none found | "
    return f"{len(found)} | {max(abs(seconds) for seconds in found.values()):.1f} s"
