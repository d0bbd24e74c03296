"""Format a forecast as text."""

from __future__ import annotations

from launcher import formatting
from launcher.products.planner.forecast.cost import NOT_IN_IT
from launcher.products.planner.forecast.forecast import Forecast
from launcher.products.planner.forecast.memory_fit import FitResult, gib
from launcher.products.planner.forecast.speed import Speed

_BUFFERS = 5


def text(forecast: Forecast) -> str:
    """Return the whole forecast; with alternatives, a table of all of them, and then each."""
    if not forecast.others:
        return _text(forecast)
    every = (forecast, *forecast.others)
    rows: list[tuple[str, ...]] = [("", "ALTERNATIVE", "FITS", "STEP", "TOKENS/S/DEVICE", "TIME", "COST")]
    rows += [(str(number), *_alternative(one)) for number, one in enumerate(every, start=1)]
    # Alternatives that share a run differ only in the price, which the table shows.
    details = [
        one
        for number, one in enumerate(every)
        if not any(
            (one.what, one.program, one.says) == (other.what, other.program, other.says) for other in every[:number]
        )
    ]
    return "\n\n".join([formatting.table(rows), *map(_text, details)])


def _alternative(forecast: Forecast) -> tuple[str, ...]:
    speed, cost = forecast.speed, forecast.cost
    rate = speed.tokens_per_second_per_device if speed else None
    return (
        forecast.alternative,
        {True: "yes", False: "no", None: "unknown"}[forecast.fits],
        _seconds(speed.step_seconds) if speed else "",
        "" if rate is None else formatting.count(rate),
        formatting.duration(cost.hours * 3600) if cost else "",
        f"${_dollars(cost.usd)}" if cost and cost.usd is not None else "",
    )


def _text(forecast: Forecast) -> str:
    """Return one forecast, one subject per row; unknown subjects are omitted."""
    rows = [(forecast.what, f"{forecast.chips} chip{'' if forecast.chips == 1 else 's'}")]
    rows.append(("fits", {True: "yes", False: "no", None: "unknown"}[forecast.fits]))
    rows += _memory(forecast)
    rows += _speed(forecast)
    rows += _cost(forecast)
    rows += [("change" if forecast.change else "next", line) for line in forecast.suggestions]
    rows += [("searched", forecast.searched)] if forecast.searched else []
    rows += [("note", line) for line in forecast.notes]
    blocks = [
        formatting.table(_once(rows), headed=False),
        _better(forecast),
        *(one.overlay.rstrip() for one in forecast.better),
    ]
    return "\n\n".join(filter(None, blocks))


def _once(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Blank out a subject that repeats the one above."""
    return [("" if number and rows[number - 1][0] == name else name, says) for number, (name, says) in enumerate(rows)]


def _memory(forecast: Forecast) -> list[tuple[str, str]]:
    program, verdict = forecast.program, forecast.verdict
    if program is None or verdict is None:
        return []
    memory = program.memory
    rows = []
    used = f"{gib(verdict.hbm)} of {gib(verdict.hbm_capacity)}"
    if verdict.margin is not None:
        used += f", {gib(abs(verdict.margin))} {'left' if verdict.margin >= 0 else 'missing'}"
    rows.append(("HBM", used))
    parts = ("arguments", "outputs", "aliased", "temporaries", "code")
    known = [f"{part} {gib(getattr(memory, part))}" for part in parts if getattr(memory, part)]
    if known:
        rows.append(("HBM", ", ".join(known)))
    if verdict.host:
        room = f" of {gib(verdict.host_capacity)}" if verdict.host_capacity is not None else ""
        rows.append(("host", f"{gib(verdict.host)}{room} of a host's memory, offloaded"))
    width = 14 if any(buffer.count > 1 for buffer in program.buffers[:_BUFFERS]) else 9
    for buffer in program.buffers[:_BUFFERS]:
        times = f"{buffer.count} x " if buffer.count > 1 else ""
        rows.append(("largest", f"{times + gib(buffer.bytes):>{width}}  {buffer.shape}  {buffer.name}".rstrip()))
    return rows


def _speed(forecast: Forecast) -> list[tuple[str, str]]:
    speed = forecast.speed
    if speed is None:
        return []
    parts = ", ".join(
        f"{name} {_seconds(seconds)}" for name, seconds in sorted(speed.parts.items(), key=lambda part: -part[1])
    )
    rates = []
    if speed.tokens_per_second_per_device is not None:
        rates.append(f"{formatting.count(speed.tokens_per_second_per_device)} tokens/s/device")
    if speed.tflops_per_second_per_device is not None:
        rates.append(f"{speed.tflops_per_second_per_device:.1f} TFLOP/s/device")
    if speed.mfu is not None:
        rates.append(f"MFU {speed.mfu:.1%}")
    rows = [("step", _seconds(speed.step_seconds))]
    rows += [("step", parts)] if parts else []
    rows += [("speed", ", ".join(rates))] if rates else []
    rows.append(("alert", f"--set tracking.forecastStepSeconds={speed.step_seconds:.3g} reports slower steps"))
    return rows


def _better(forecast: Forecast) -> str:
    """Return a table of the run itself and the best configs, in the order of their overlays."""
    if not forecast.better or forecast.speed is None or forecast.verdict is None or forecast.program is None:
        return ""
    batch = forecast.program.model.global_batch
    rows: list[tuple[str, ...]] = [("", "step", "tokens/s/device", "gain", "MFU", "HBM left", "global batch")]
    rows.append(("this run", *_row(forecast.speed, forecast.verdict, 1.0, batch)))
    rows += [
        (str(number), *_row(one.speed, one.verdict, one.gain, one.global_batch))
        for number, one in enumerate(forecast.better, start=1)
    ]
    return formatting.table(rows)


def _row(speed: Speed, verdict: FitResult, gain: float, batch: float | None) -> tuple[str, ...]:
    return (
        _seconds(speed.step_seconds),
        formatting.count(speed.tokens_per_second_per_device or 0),
        f"{gain:.2f} x",
        "" if speed.mfu is None else f"{speed.mfu:.1%}",
        "" if verdict.margin is None else gib(verdict.margin),
        "" if batch is None else f"{batch:,g}",
    )


def _cost(forecast: Forecast) -> list[tuple[str, str]]:
    cost = forecast.cost
    if cost is None:
        return []
    took = f"{formatting.duration(cost.hours * 3600)} for {cost.steps:,} steps"
    took += f" ({_tokens(cost.tokens)} tokens)" if cost.tokens else ""
    rows = [("time", took)]
    if cost.usd is None or cost.usd_per_chip_hour is None:
        return [*rows, ("cost", cost.says)]
    where = ", ".join(filter(None, [cost.provisioning, cost.region, cost.date]))
    rows.append(
        ("cost", f"${_dollars(cost.usd)}: {cost.chip_hours:,.2f} chip hours at ${cost.usd_per_chip_hour:g} ({where})")
    )
    return [*rows, ("cost", NOT_IN_IT)]


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 100 else formatting.duration(seconds)


def _dollars(usd: float) -> str:
    return f"{usd:,.2f}" if usd < 1000 else f"{usd:,.0f}"


def _tokens(tokens: float) -> str:
    for size, unit in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if tokens >= size:
            return f"{tokens / size:.3g} {unit}"
    return f"{tokens:,.0f}"
