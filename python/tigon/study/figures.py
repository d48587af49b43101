"""The figures: each a function of a Study."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MultipleLocator

from tigon.study.data import Point, Study

matplotlib.rcParams["text.parse_math"] = False  # a $ in a title is a dollar
GIB = 2**30
# Okabe and Ito's, which people who see colours differently can tell apart; the page has the same.
STRATEGIES = ["#d55e00", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8a6d3b", "#999999"]
STAGES = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#e3bd00", "#8a6d3b"]
CLASSES = {
    "weights": "#0072b2", "gradients": "#56b4e9", "states": "#009e73", "layer inputs": "#e3bd00", "activations": "#e69f00",
    "loss": "#d55e00", "workspace": "#cc79a7", "other": "#999999",
}  # fmt: skip
INK, SOFT, LINE, ALARM = "#16181d", "#5b6270", "#e4e6eb", "#b3261e"


def figures_of(study: Study) -> Iterator[tuple[str, Figure]]:
    """All that the study's files have something for, with their names."""
    for name, size, other, words in (
        ("batches", _batch, _seq, "sequences in a step, {} tokens each"),
        ("sequences", _seq, _batch, "tokens in a sequence, batch {}"),
    ):
        swept = _sweep(study, size, other)
        if swept:
            fixed, points = swept
            yield f"{name}-throughput", throughput_bars(study, points, size, words.format(fixed))
            yield f"{name}-memory", memory_bars(study, points, size, words.format(fixed))
    pair = telling_pair(study)
    if pair:
        yield "memory-over-a-step", memory_over_a_step(study, pair)
    same = _same_size(study)
    if len(same) > 1:
        yield "ablation", ablation(study, same)
    timed = [point for point in same or study.points if study.times(point)]
    if timed:
        yield "step-time", step_time(study, timed[:4])


def _batch(point: Point) -> int:
    return point.batch


def _seq(point: Point) -> int:
    return point.seq


def _sweep(study: Study, size: Callable[[Point], int], other: Callable[[Point], int]) -> tuple[int, list[Point]] | None:
    """The other size at which the most points differ in this one."""
    best: tuple[int, list[Point]] | None = None
    for fixed in sorted({other(point) for point in study.points}):
        points = [point for point in study.points if other(point) == fixed]
        if len({size(point) for point in points}) > 1 and (best is None or len(points) > len(best[1])):
            best = fixed, points
    return best


def telling_pair(study: Study) -> list[Point]:
    """Of the largest size at which two that differ in nothing but what is fused ran: the larger and the smaller one."""

    def flags(point: Point) -> str:
        words = study.flags[point.strategy].replace("--fused=", "--fused ").split()
        return " ".join(w for i, w in enumerate(words) if w != "--fused" and (i == 0 or words[i - 1] != "--fused"))

    for alike in (flags, lambda point: ""):
        groups: dict[tuple[int, int, str], list[Point]] = {}
        for point in study.points:
            if point.done and study.memory(point):
                groups.setdefault((point.batch * point.seq, point.seq, alike(point)), []).append(point)
        for _, points in sorted(groups.items(), reverse=True):
            ends = [pick(points, key=lambda p: p.planned_bytes) for pick in (max, min)]
            if ends[0] is not ends[1]:
                return ends
    return []


def _same_size(study: Study) -> list[Point]:
    """All strategies at the largest size that the most of them ran."""
    groups: dict[tuple[int, int], list[Point]] = {}
    for point in study.points:
        if point.done:
            groups.setdefault((point.batch * point.seq, point.seq), []).append(point)
    return max(groups.items(), key=lambda item: (len(item[1]), item[0]), default=((0, 0), []))[1]


def _colour(study: Study, strategy: str) -> str:
    return STRATEGIES[list(study.titles).index(strategy) % len(STRATEGIES)]


def _paper(width: float, height: float, columns: int = 1, share: bool = False) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(1, columns, squeeze=False, sharey=share)
    all_axes: list[Axes] = list(grid[0])
    for axes in all_axes:
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(SOFT)
        axes.tick_params(length=0, labelsize=9, colors=INK)
        axes.set_axisbelow(True)
    return figure, all_axes


def _headed(axes: Axes, title: str, below: str = "") -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK, pad=12)
    axes.set_xlabel(below, fontsize=9.5, color=SOFT, labelpad=8)


def _legend(figure: Figure, handles: list[Patch]) -> None:
    figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)), frameon=False, fontsize=9)


def _gib_axis(axes: Axes, most: float, across: bool = False) -> None:
    step = 2.0 ** round_power(most / GIB / 4.5)
    axis = axes.xaxis if across else axes.yaxis
    axis.set_major_locator(MultipleLocator(step * GIB))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _bytes(value)))


def round_power(value: float) -> int:
    """The power of two that is nearest."""
    return round(math.log2(value)) if value > 0 else 0


def _limit(axes: Axes, limit: int) -> None:
    axes.axhline(limit, color=ALARM, linestyle=(0, (5, 3)), linewidth=1.3)
    words = f"limit {_bytes(limit)}"
    text = axes.text(0.005, limit, words, transform=axes.get_yaxis_transform(), va="bottom")
    text.set(fontsize=9, color=ALARM, fontweight="bold")


def _bars(study: Study, axes: Axes, points: list[Point], size: Callable[[Point], int],
          draw: Callable[[float, float, Point], None]) -> list[Patch]:  # fmt: skip
    """Groups by size, in each a slot per strategy; `draw` gets the slot's middle and width."""
    sizes = sorted({size(point) for point in points})
    strategies = [name for name in study.titles if any(point.strategy == name for point in points)]
    width = 0.82 / len(strategies)
    for point in points:
        middle = sizes.index(size(point)) + (strategies.index(point.strategy) - (len(strategies) - 1) / 2) * width
        draw(middle, width * 0.94, point)
    axes.set_xticks(range(len(sizes)), [f"{s}" for s in sizes])
    axes.set_xlim(-0.55, len(sizes) - 0.45)
    axes.grid(axis="y", color=LINE)
    return [Patch(color=_colour(study, name), label=study.titles[name]) for name in strategies]


def throughput_bars(study: Study, points: list[Point], size: Callable[[Point], int], below: str) -> Figure:
    """Tokens per second; a cross where a point ran out of memory."""
    figure, (axes,) = _paper(8, 4)

    def draw(middle: float, width: float, point: Point) -> None:
        if point.tokens_per_second is not None:
            bar = axes.bar(middle, point.tokens_per_second, width, color=_colour(study, point.strategy))
            bar[0].set_gid(point.id)
            if point.spread:
                axes.vlines(middle, *point.spread, color=INK, linewidth=1)
        elif point.out_of_memory:
            _cross(axes, middle, 0.035, "out of memory")

    handles = _bars(study, axes, points, size, draw)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _headed(axes, "Throughput, tokens/s", below)
    _legend(figure, handles)
    return figure


def _cross(axes: Axes, x: float, height: float, words: str) -> None:
    where = axes.get_xaxis_transform()
    axes.plot([x], [height], transform=where, marker="x", color=ALARM, markersize=6, markeredgewidth=2, clip_on=False)
    text = axes.text(x, height + 0.045, words, transform=where, rotation=90, ha="center", va="bottom", fontsize=7.5)
    text.set(color=SOFT, path_effects=[withStroke(linewidth=3, foreground="white")])


def memory_bars(study: Study, points: list[Point], size: Callable[[Point], int], below: str) -> Figure:
    """Peak memory; striped, and with a cross, what points would have needed that ran out of it."""
    figure, (axes,) = _paper(8, 4)
    ran = max((p.peak_bytes for p in points if p.peak_bytes is not None), default=0)
    planned = max((p.planned_bytes for p in points if p.out_of_memory), default=0)
    # Far above all that ran, the limit would make it flat.
    limit = study.cap_bytes if planned or study.cap_bytes < 4 * ran else 0
    measured = max(ran, limit)
    top = min(max(measured, planned) * 1.04, measured * 1.5) if measured else planned * 1.04

    def draw(middle: float, width: float, point: Point) -> None:
        colour = _colour(study, point.strategy)
        if point.peak_bytes is not None:
            bar = axes.bar(middle, point.peak_bytes, width, color=colour)
        elif point.out_of_memory:
            bar = axes.bar(
                middle, point.planned_bytes, width, facecolor=colour + "28", edgecolor=colour, hatch="////", linewidth=0
            )
            _cross(axes, middle, 0.035, f"needs {point.planned_bytes / GIB:.3g} GiB")
        else:
            return
        bar[0].set_gid(point.id)

    handles = _bars(study, axes, points, size, draw)
    axes.set_ylim(0, top or 1)
    _gib_axis(axes, top or 1)
    if limit:
        _limit(axes, limit)
    _headed(axes, "Peak memory of the device", below)
    _legend(figure, handles)
    return figure


def levels(memory: dict[str, Any]) -> tuple[list[int], dict[str, list[int]]]:
    """Times, and from each of them on the bytes that each class holds."""
    blocks, classes = memory["blocks"], memory["classes"]
    changes = []
    for birth, death, size, kind in zip(*(blocks[name] for name in ("birth", "death", "bytes", "class")), strict=True):
        # At one time deaths come first, but for what is gone as soon as it is born.
        changes.append((birth, 1, kind, size))
        if death >= 0:
            changes.append((death, 2 if death == birth else 0, kind, -size))
    now = [0] * len(classes)
    times: list[int] = []
    values: dict[str, list[int]] = {name: [] for name in classes}
    for time, _, kind, change in sorted(changes):
        now[kind] += change
        times.append(time)
        for name, level in zip(classes, now, strict=True):
            values[name].append(level)
    return times, {name: level for name, level in values.items() if any(level)}


def thinned(
    times: list[int], values: dict[str, list[int]], columns: int = 2000
) -> tuple[list[int], dict[str, list[int]]]:
    """Of each of so many stretches of time the fullest state and the last one: what can be seen of many events."""
    totals = [sum(at) for at in zip(*values.values(), strict=True)]
    width = max(1, -(-(times[-1] + 1) // columns)) if times else 1
    kept: list[int] = []
    for _, states in itertools.groupby(range(len(times)), key=lambda state: times[state] // width):
        stretch = list(states)
        kept += sorted({max(stretch, key=lambda state: totals[state]), stretch[-1]})
    return [times[state] for state in kept], {name: [level[state] for state in kept] for name, level in values.items()}


def memory_over_a_step(study: Study, pair: list[Point]) -> Figure:
    """Stacked by class, to one scale."""
    figure, all_axes = _paper(10.5, 4.2, len(pair), share=True)
    shown: dict[str, str] = {}
    highest = 0
    for axes, point in zip(all_axes, pair, strict=True):
        memory = study.memory(point)
        assert memory is not None
        times, values = thinned(*levels(memory))
        scale = 1e-6 if memory["unit"] == "ns" else 1.0
        end = max([*times, *(phase["end"] for phase in memory.get("phases", []))])
        x = [time * scale for time in (*times, end)]
        colours = {name: CLASSES.get(name, "#999999") for name in values}
        stack = [[*level, level[-1]] for level in values.values()]
        axes.stackplot(x, *stack, step="post", labels=list(values), colors=list(colours.values()), linewidth=0)
        highest = max(highest, max(sum(at) for at in zip(*values.values(), strict=True)))
        shown |= colours
        free = -1.0
        axes.set_xlim(0, end * scale)
        for phase in memory.get("phases", []):
            axes.axvline(phase["begin"] * scale, color=SOFT, linewidth=0.6, alpha=0.6)
            begin = max(phase["begin"] * scale, free)
            if begin <= max(phase["end"] * scale, free) and begin < 0.97 * end * scale:
                axes.text(
                    begin, 1.01, f" {phase['name']}", transform=axes.get_xaxis_transform(), fontsize=8, color=SOFT
                )
                free = begin + end * scale * (0.02 + 0.017 * len(phase["name"]))
        name = f"{study.titles[point.strategy]}, batch {point.batch} × {point.seq}"
        _headed(axes, name, "milliseconds" if memory["unit"] == "ns" else "births and deaths of blocks")
        axes.title.set_position((0, 1.06))
        axes.grid(axis="y", color=LINE)
    all_axes[0].set_ylim(0, highest * 1.04)
    _gib_axis(all_axes[0], highest)
    _legend(figure, [Patch(color=colour, label=name) for name, colour in shown.items()])
    return figure


def ablation(study: Study, points: list[Point]) -> Figure:
    """All strategies at one size: speed and memory."""
    figure, (speed, memory) = _paper(10.5, 1.5 + 0.42 * len(points), 2)
    names = [study.titles[point.strategy] for point in points]
    rows = range(len(points))
    for axes, values, words in (
        (speed, [p.tokens_per_second or 0 for p in points], [f"{p.tokens_per_second or 0:,.0f}" for p in points]),
        (memory, [p.peak_bytes or 0 for p in points], [_bytes(p.peak_bytes or 0) for p in points]),
    ):
        bars = axes.barh(rows, values, color=[_colour(study, p.strategy) for p in points], height=0.72)
        for bar, point, text in zip(bars, points, words, strict=True):
            bar.set_gid(point.id)
            axes.annotate(text, (bar.get_width(), bar.get_y() + bar.get_height() / 2), (5, 0), textcoords="offset points",
                          va="center", fontsize=9, color=SOFT)  # fmt: skip
        axes.invert_yaxis()
        axes.set_xlim(0, (max(values) or 1) * 1.2)
        axes.grid(axis="x", color=LINE)
    speed.set_yticks(rows, names)
    memory.set_yticks([])
    speed.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _gib_axis(memory, max(p.peak_bytes or 0 for p in points), across=True)
    size = f"batch {points[0].batch} × {points[0].seq} tokens"
    _headed(speed, "Throughput, tokens/s", size)
    _headed(memory, "Peak memory of the device", size)
    return figure


def _bytes(value: float) -> str:
    for scale, unit in ((GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= scale:
            return f"{value / scale:.4g} {unit}" if value >= 1000 * scale else f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B" if value else "0"


def step_time(study: Study, points: list[Point]) -> Figure:
    """Stage by stage, measured and at the least."""
    times = [study.times(point) or {"rows": []} for point in points]
    totals: dict[str, float] = {}
    for table in times:
        for row in table["rows"]:
            totals[row["name"]] = totals.get(row["name"], 0.0) + row["seconds"]
    parts = sorted(totals, key=lambda name: -totals[name])
    shown = parts if len(parts) <= 8 else parts[:7]
    figure, (axes,) = _paper(10, 1.4 + 0.85 * len(points))
    handles = []
    left = [0.0] * (2 * len(points))
    for place, part in enumerate([*shown, *([None] if len(parts) > 8 else [])]):
        colour = "#8b93a1" if part is None else STAGES[place % len(STAGES)]
        for row, table in enumerate(times):
            rows = [r for r in table["rows"] if (r["name"] not in shown if part is None else r["name"] == part)]
            for at, key in ((2 * row, "seconds"), (2 * row + 1, "floor_seconds")):
                value = sum(r.get(key, 0.0) for r in rows) * 1e3
                axes.barh(at, value, left=left[at], color=colour, height=0.78, edgecolor="white", linewidth=0.5)
                left[at] += value
        handles.append(Patch(color=colour, label=part or "everything else"))
    labels = [label for p in points for label in (f"{study.titles[p.strategy]}, {p.batch} × {p.seq}", "its floor")]
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(axis="x", color=LINE)
    _headed(axes, "Where a step’s time goes", "milliseconds")
    _legend(figure, handles)
    return figure
