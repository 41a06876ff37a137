"""Turns measurements of training epochs into the rows of the comparison, and those into a Markdown table.

A measurement is a dictionary: model, dtype, engine, side ("heddle" or "pytorch"), epoch_seconds (a list; missing where
nothing is timed, on a simulated GPU), steps and images of an epoch, batch, kernels_per_step (or None). No import beyond
the standard library.
"""
import statistics

import floor

COLUMNS = ("model", "dtype", "engine", "us/step", "spread", "s/epoch", "img/s", "kernels/step", "TFLOP/s", "% of floor",
           "x eager", "x best")
EAGER = "PyTorch eager"


def median_and_spread(values):
    """Median, and the distance of the quartiles as a share of it (0 for a single value)."""
    median = statistics.median(values)
    if len(values) < 2 or median == 0:
        return median, 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return median, (high - low) / median


def make_row(measurement, limits):
    """A row with its numbers; what cannot be known is None. limits: of the row's dtype, or None."""
    m = measurement
    row = {key: m[key] for key in ("model", "dtype", "engine", "side", "batch")}
    row["kernels_per_step"] = m.get("kernels_per_step")
    flops = floor.step_flops(m["model"], m["batch"])
    plan = floor.fused_plan(m["model"], m["batch"])
    row["flops_per_step"] = flops
    row["fused_plan"] = {"kernels": len(plan), "bytes": sum(k.nbytes for k in plan)}
    for key in ("declared_bytes_per_step", "launches_per_step"):
        if key in m:
            row[key] = m[key]
    if "epoch_seconds" not in m:
        return row
    seconds, spread = median_and_spread(m["epoch_seconds"])
    step = seconds / m["steps"]
    row.update(step_us=step * 1e6, spread=spread, epochs_timed=len(m["epoch_seconds"]), epoch_seconds=seconds,
               images_per_second=m["images"] / seconds, tflops=flops / step / 1e12)
    row["floor_us"] = floor.floor_seconds(plan, limits) * 1e6 if limits else None
    row["share_of_floor"] = row["floor_us"] / row["step_us"] if limits else None
    return row


def add_ratios(rows):
    """How many times as fast a row is as PyTorch eager of the same model and dtype (fp32, if it has no such row), and as
    the fastest PyTorch row of the same model, whatever its mode and dtype."""
    for row in rows:
        peers = [r for r in rows if r["model"] == row["model"] and r["side"] == "pytorch" and "step_us" in r]
        eager = [r for r in peers if r["engine"] == EAGER]
        chosen = [r for r in eager if r["dtype"] == row["dtype"]] or [r for r in eager if r["dtype"] == "fp32"]
        if "step_us" not in row:
            continue
        row["x_eager"] = chosen[0]["step_us"] / row["step_us"] if chosen else None
        row["x_best"] = min(r["step_us"] for r in peers) / row["step_us"] if peers else None
    return rows


def cells(row):
    def text(key, form, factor=1):
        value = row.get(key)
        return "-" if value is None else form.format(value * factor)

    return (row["model"], row["dtype"], row["engine"], text("step_us", "{:.1f}"), text("spread", "{:.1f}%", 100),
            text("epoch_seconds", "{:.4f}"), text("images_per_second", "{:.0f}"), text("kernels_per_step", "{:g}"),
            text("tflops", "{:.2f}"), text("share_of_floor", "{:.0f}%", 100), text("x_eager", "{:.2f}"),
            text("x_best", "{:.2f}"))


def markdown(rows, simulated):
    """The table. On a simulated GPU every line of the head says so, and no column of times is there."""
    shown = [i for i, name in enumerate(COLUMNS) if not simulated or name in ("model", "dtype", "engine", "kernels/step")]
    names = [COLUMNS[i] + (" (simulated)" if simulated else "") for i in shown]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(shown)]
    for row in rows:
        values = cells(row)
        lines.append("| " + " | ".join(values[i] for i in shown) + " |")
    return "\n".join(lines)
