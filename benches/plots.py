#!/usr/bin/env python3
"""Pictures for the README from the tables of one GPU run: `plots.py FOLDER [INTO]` (default INTO: benches/plots).

Draws what the folder has tables for: pair.svg (time of a pair on three traces), memory.svg (memory taken over memory in
use), threads.svg (scaling), jobs.svg (whole PyTorch jobs). Backgrounds are transparent and inks of middle lightness, so
that they read on a light and on a dark page. The same tables give the same files. Needs matplotlib.
"""

import csv
import os
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plots.py: matplotlib is not installed for this Python: python3 -m pip install matplotlib, or set PYTHON")

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator, NullFormatter  # noqa: E402

INK, FAINT = "#768390", "#76839055"
OURS, OURS_LIGHT, TORCH, TORCH_LIGHT = "#2f7de1", "#6fa8f0", "#d9722e", "#e8a06f"
# In this order, from top to bottom; what a run did not have is left out.
COLOURS = {
    "gpucache": OURS,
    "gpucache expandable": OURS_LIGHT,
    "PyTorch": TORCH,
    "PyTorch expandable": TORCH_LIGHT,
    "RMM pool": "#3f9a5f",
    "cudaMallocAsync": "#9a6fd8",
    "cudaMalloc": "#8a8f98",
    "glibc malloc": "#b5a03a",
}
JOBS = {
    "gpucache, cache off": OURS,
    "gpucache expandable, cache off": OURS_LIGHT,
    "PyTorch's cache": TORCH,
    "PyTorch expandable": TORCH_LIGHT,
    "gpucache under PyTorch's cache": "#3f9a5f",
    "cache off": "#8a8f98",
}
# Text stays text, in the reader's font; nothing of the day or the machine goes into the file.
plt.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "gpucache", "font.family": "sans-serif", "font.size": 9,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT, "xtick.color": INK, "ytick.color": INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10, "axes.titleweight": "bold",
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.transparent": True,
})  # fmt: skip


def table(folder, name):
    """Rows of a TSV file as dictionaries; none if there is no such file."""
    path = os.path.join(folder, f"{name}.tsv")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def machine(folder):
    """One line that says where the figures come from."""
    with open(os.path.join(folder, "machine.tsv"), encoding="utf-8") as file:
        facts = dict(line.rstrip("\n").split("\t", 1) for line in file if "\t" in line)
    versions = [f"driver {facts['driver']}", f"CUDA {facts['cuda']}"]
    versions += [f"{label} {facts[key]}" for key, label in [("torch", "PyTorch"), ("rmm", "RMM")] if facts.get(key) not in (None, "", "none")]
    return f"{facts['gpu']}, {', '.join(versions)}; gpucache {facts['commit']}, {facts['date']}"


def short(value):
    """Three figures at most, with thousands."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def save(figure, title, folder, into, name):
    """Adds the heading and the origin, and writes the file."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    figure.text(0.01, 0.01, machine(folder), fontsize=7, color=INK)
    figure.tight_layout(rect=(0, 0.04, 1, 0.97))
    path = os.path.join(into, f"{name}.svg")
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    print(path)


def panels(rows, panel_key, value_key, colours):
    """{panel: {allocator: value}} in the order of the rows and of `colours`."""
    found = {}
    for row in rows:
        if row["allocator"] in colours and row[value_key] not in ("", "-"):
            found.setdefault(row[panel_key], {})[row["allocator"]] = float(row[value_key])
    return {panel: {name: values[name] for name in colours if name in values} for panel, values in found.items()}


def draw_panels(data, colours, draw):
    """A panel for each entry of `data`, with the allocators as rows of one shared axis. Returns the figure."""
    names = [name for name in colours if any(name in values for values in data.values())]
    figure, axes = plt.subplots(1, len(data), figsize=(8.6, 0.9 + 0.3 * len(names)), sharex=True, sharey=True, squeeze=False)
    for axis, (panel, values) in zip(axes[0], data.items()):
        axis.set_title(panel, loc="left")
        axis.set_yticks(range(len(names)), names)
        axis.tick_params(length=0)
        axis.grid(axis="x", color=FAINT, linewidth=0.5)
        axis.set_axisbelow(True)
        axis.spines["left"].set_visible(False)
        for name, value in values.items():
            draw(axis, names.index(name), value, colours[name])
    axes[0][0].invert_yaxis()
    return figure


def draw_pair(folder, into):
    """Times differ by a hundredfold: points on a logarithmic scale."""
    data = panels(table(folder, "replay"), "trace", "pair_ns", COLOURS)
    if not data:
        return

    def point(axis, at, value, colour):
        axis.plot([value], [at], "o", color=colour, markersize=7)
        axis.annotate(short(value), (value, at), (7, 0), textcoords="offset points", va="center", fontsize=8)

    figure = draw_panels(data, COLOURS, point)
    axis = figure.axes[0]
    values = [value for panel in data.values() for value in panel.values()]
    axis.set_xscale("log")
    axis.set_xlim(min(values) / 1.6, max(values) * 5)
    axis.xaxis.set_major_locator(LogLocator(10))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    save(figure, "Allocation and free in a training job's trace, mean, ns (less is better)", folder, into, "pair")


def draw_memory(folder, into):
    """What is above 1 is memory that the job did not ask for: bars from there."""
    data = panels(table(folder, "replay"), "trace", "memory_ratio", COLOURS)
    if not data:
        return

    def bar(axis, at, value, colour):
        axis.barh(at, value - 1, left=1, color=colour, height=0.62)
        axis.annotate(f"{value:.2f}", (max(value, 1), at), (4, 0), textcoords="offset points", va="center", fontsize=8)

    figure = draw_panels(data, COLOURS, bar)
    values = [value for panel in data.values() for value in panel.values()]
    figure.axes[0].set_xlim(min(1, *values) - 0.005, 1 + (max(values) - 1) * 1.3)
    figure.axes[0].xaxis.set_major_locator(MultipleLocator(0.5 if max(values) > 1.8 else 0.25))
    save(figure, "Driver memory at its peak, over what the job had in use (less is better)", folder, into, "memory")


def draw_threads(folder, into):
    """Own and cross-thread frees side by side."""
    rows = [row for row in table(folder, "threads") if row["allocator"] in COLOURS]
    if not rows:
        return
    titles = {"own": "each thread frees its own", "cross": "each frees another's"}
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.4), sharey=True)
    for axis, (kind, title) in zip(axes, titles.items()):
        axis.set_title(title, loc="left")
        for name, colour in COLOURS.items():
            points = sorted((int(r["threads"]), float(r["million_pairs_per_s"])) for r in rows if r["allocator"] == name and r["frees"] == kind)
            if not points:
                continue
            ours = name.startswith("gpucache")
            axis.plot(*zip(*points), "o-", color=colour, linewidth=2.4 if ours else 1.4, markersize=5, label=name)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        counts = sorted({int(row["threads"]) for row in rows})
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel("threads")
        axis.grid(color=FAINT, linewidth=0.5)
    lines = {line.get_label(): line for axis in axes for line in axis.get_lines()}
    shown = [name for name in COLOURS if name in lines]
    axes[1].legend([lines[name] for name in shown], shown, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    save(figure, "Millions of allocations and frees a second, all threads together (more is better)", folder, into, "threads")


def draw_jobs(folder, into):
    """Milliseconds a step, each job on its own scale: as a share of what PyTorch's own cache takes."""
    data = panels(table(folder, "jobs"), "job", "ms_a_step", JOBS)
    base = "PyTorch's cache"
    data = {f"{job} ({short(values[base])} ms)": {n: v / values[base] for n, v in values.items()} for job, values in data.items() if base in values}
    if not data:
        return

    def bar(axis, at, value, colour):
        axis.barh(at, value, color=colour, height=0.62)
        axis.annotate(f"{value:.2f}", (value, at), (4, 0), textcoords="offset points", va="center", fontsize=8)

    figure = draw_panels(data, JOBS, bar)
    figure.axes[0].set_xlim(0, 1.2 * max(value for panel in data.values() for value in panel.values()))
    save(figure, "Time of a PyTorch training step, over that with PyTorch's own cache (less is better)", folder, into, "jobs")


def main():
    if not 2 <= len(sys.argv) <= 3 or not os.path.exists(os.path.join(sys.argv[1], "machine.tsv")):
        sys.exit("usage: plots.py FOLDER [INTO]; FOLDER is what scripts/bench.sh --gpu left")
    folder = sys.argv[1]
    into = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "plots")
    os.makedirs(into, exist_ok=True)
    for draw in (draw_pair, draw_memory, draw_threads, draw_jobs):
        draw(folder, into)


main()
