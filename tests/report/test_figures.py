"""The figures of a study have the values of its files."""

import csv
import json
import re
import shutil
import subprocess
import sys

import pytest
from study_fixture import make_study
from tigon.study import figures
from tigon.study.data import StudyError, read_study

NAMES = [
    "batches-throughput",
    "batches-memory",
    "sequences-throughput",
    "sequences-memory",
    "memory-over-a-step",
    "ablation",
    "step-time",
]


@pytest.fixture(scope="module")
def drawn(whole):
    return dict(figures.figures_of(read_study(whole)))


def rows_of(folder):
    with open(folder / "results.csv", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def bars(figure, axes=0):
    """Heights, or widths of bars that lie, by the point that each stands for."""
    return {bar.get_gid(): bar for bar in figure.axes[axes].patches if bar.get_gid()}


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.mark.parametrize("axis", [("batches", "seq", "1024"), ("sequences", "batch", "4")])
def test_bars_are_the_csv(drawn, whole, axis):
    name, key, fixed = axis
    rows = {k: row for k, row in rows_of(whole).items() if row[key] == fixed}
    done = {k: row for k, row in rows.items() if row["status"] == "done"}
    speed, memory = bars(drawn[f"{name}-throughput"]), bars(drawn[f"{name}-memory"])
    assert {k: bar.get_height() for k, bar in speed.items()} == {
        k: float(row["tokens_per_second"]) for k, row in done.items()
    }
    assert {k: bar.get_height() for k, bar in memory.items()} == {
        k: int(row["peak_bytes"] or row["planned_device_bytes"]) for k, row in rows.items()
    }
    # Out of memory: a word and no bar; in memory striped.
    out = len(rows) - len(done)
    assert out > 0
    assert words(drawn[f"{name}-throughput"]).count("out of memory") == out
    assert sum(text.startswith("needs ") for text in words(drawn[f"{name}-memory"])) == out
    assert {k for k, bar in memory.items() if bar.get_hatch()} == rows.keys() - done.keys()
    assert "limit 24 GiB" in words(drawn[f"{name}-memory"])


def test_memory_is_the_timelines(drawn, whole):
    axes = drawn["memory-over-a-step"].axes
    assert [a.get_title(loc="left") for a in axes] == [
        "No fused kernels, batch 4 × 2048",
        "Fused kernels, batch 4 × 2048",
    ]
    assert axes[0].get_ylim() == axes[1].get_ylim()
    for place, name in enumerate(("unfused-b4-s2048", "fused-b4-s2048")):
        memory = json.loads((whole / "points" / name / "memory.json").read_text())
        _, values = figures.levels(memory)
        assert max(sum(at) for at in zip(*values.values(), strict=True)) == memory["peak_bytes"]
        top = max(path.vertices[:, 1].max() for stack in axes[place].collections for path in stack.get_paths())
        assert top == memory["peak_bytes"]


def test_many_events_are_thinned_to_what_can_be_seen():
    times = sorted((7919 * i) % 1_000_003 for i in range(100_000))
    values = {"a": [i % 977 for i in range(100_000)], "b": [0] * 99_999 + [5]}
    few, thin = figures.thinned(times, values)
    assert len(few) <= 4000
    assert few == sorted(few)
    assert max(thin["a"]) == 976
    assert (thin["a"][-1], thin["b"][-1]) == (99_999 % 977, 5)
    # Where there are few of them, nothing is lost.
    assert figures.thinned([0, 10**9, 2 * 10**9], {"a": [1, 3, 2]}) == ([0, 10**9, 2 * 10**9], {"a": [1, 3, 2]})
    assert figures.thinned([], {}) == ([], {})


def test_a_limit_far_away_does_not_flatten_what_ran(tmp_path):
    make_study(tmp_path, batches=(1, 4), seqs=(1024,), strategies=[("offload", "Offloaded", "")])
    study = read_study(tmp_path)
    highest = max(point.peak_bytes for point in study.points)
    assert study.cap_bytes > 4 * highest
    memory = dict(figures.figures_of(study))["batches-memory"]
    assert highest < memory.axes[0].get_ylim()[1] < 1.1 * highest
    assert not any("limit" in text for text in words(memory))


def test_ablation_is_the_csv(drawn, whole):
    rows = {k: row for k, row in rows_of(whole).items() if row["batch"] == "4" and row["seq"] == "2048"}
    speed, memory = (bars(drawn["ablation"], axes) for axes in (0, 1))
    assert {k: bar.get_width() for k, bar in speed.items()} == {
        k: float(row["tokens_per_second"]) for k, row in rows.items()
    }
    assert {k: bar.get_width() for k, bar in memory.items()} == {k: int(row["peak_bytes"]) for k, row in rows.items()}


def test_step_time_adds_up(drawn, whole):
    axes = drawn["step-time"].axes[0]
    ends = {}
    for bar in axes.patches:
        row = round(bar.get_y() + bar.get_height() / 2)
        ends[row] = max(ends.get(row, 0), bar.get_x() + bar.get_width())
    times = json.loads((whole / "points/unfused-b4-s2048/times.json").read_text())
    assert ends[0] == pytest.approx(times["seconds"] * 1e3)
    assert ends[1] == pytest.approx(sum(row.get("floor_seconds", 0) for row in times["rows"]) * 1e3)


def run(*arguments, code=None):
    command = [sys.executable, *(["-c", code] if code else ["-m", "tigon.study"]), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_command(whole, tmp_path):
    said = run(whole, "--output", tmp_path / "figures")
    assert said.returncode == 0, said.stderr
    assert {f.name for f in (tmp_path / "figures").iterdir()} == {
        f"{name}.{ending}" for name in NAMES for ending in ("png", "svg")
    }
    assert (tmp_path / "figures/ablation.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (tmp_path / "figures/ablation.svg").read_text()


def test_partial_and_broken_folders(tmp_path):
    refused = run(tmp_path)
    assert refused.returncode == 1
    assert "is no study: it has no study.json" in refused.stderr
    folder = tmp_path / "study"
    make_study(folder)
    shutil.rmtree(folder / "points/fused-b4-s2048")
    (folder / "points/unfused-b4-s2048/times.json").write_text("[1]")
    (folder / "points/but-loss-b4-s2048/memory.json").write_text(
        '{"format": "tigon-memory", "version": 1, "blocks": {}}'
    )
    said = run(folder)
    assert said.returncode == 0, said.stderr
    assert len(re.findall(r"^note: .* is left out", said.stdout, re.M)) == 2
    assert len(list((folder / "figures").iterdir())) == 2 * len(NAMES)
    (folder / "results.csv").write_text("id,strategy\nx,y\n")
    with pytest.raises(StudyError, match="no study that can be read"):
        read_study(folder)
    (folder / "study.json").write_text("[" * 100000)
    assert run(folder).returncode == 1


def test_titles_are_no_formulas(tmp_path):
    make_study(
        tmp_path, batches=(1, 4), seqs=(1024,), strategies=[("fused", r"$\frac{ costs $5", ""), ("offload", "_b", "")]
    )
    said = run(tmp_path)
    assert said.returncode == 0, said.stderr
    assert r"$\frac{ costs $5" in (tmp_path / "figures/ablation.svg").read_text()


def test_nothing_ran(tmp_path):
    make_study(tmp_path, batches=(64,), seqs=(1024,), strategies=[("unfused", "Unfused", "--fused none")])
    said = run(tmp_path)
    assert said.returncode == 1
    assert "has anything to draw yet" in said.stderr


def test_matplotlib_is_asked_for(whole):
    code = "import sys, runpy; sys.modules['matplotlib'] = None; runpy.run_module('tigon.study', run_name='__main__')"
    refused = run(whole, code=code)
    assert refused.returncode == 1
    assert "pip install matplotlib" in refused.stderr
