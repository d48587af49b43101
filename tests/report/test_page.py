"""The page of a study in a headless Chromium: nothing complains, nothing is fetched, and it shows what results.csv has."""

import csv
import json
import re
import shutil
import time

import pytest
from study_fixture import CLASSES, make_study, timeline, write

HIGH = 20000  # so that every chart is on the screen, and so drawn

TABLE = """
[...document.querySelectorAll('#results-table tbody tr')].map(row => Object.fromEntries([['id', {value: row.dataset.id}],
  ...[...row.children].map(cell => [cell.dataset.column, {value: cell.dataset.value, text: cell.innerText}])]))"""

# Each chart's datasets: labels, and values as they were given.
CHARTS = """
Object.fromEntries([...document.querySelectorAll('canvas[id]')].map(canvas => [canvas.id, Chart.getChart(canvas)])
  .filter(([, chart]) => chart).map(([id, {data}]) => [id, {labels: data.labels,
    sets: data.datasets.map(({label, data, marks}) => ({label, data, marks}))}]))"""


def heights(chart):
    """Of a stack, at each place."""
    return [sum(values) for values in zip(*([p["y"] for p in s["data"]] for s in chart["sets"]), strict=True)]


@pytest.fixture
def opened(tigon, browser):
    """Makes the page of a study, and opens it."""
    pages = []

    def open_study(folder, **size):
        tigon("report", folder)
        pages.append(browser.open(folder / "report.html", **({"height": HIGH} | size)))
        return pages[-1]

    yield open_study
    for page in pages:
        page.close()


def results(folder):
    with open(folder / "results.csv") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def quiet(page):
    assert page.complaints() == []
    assert len([url for url in page.requests() if not url.startswith("data:")]) == 1  # the page itself


def test_the_table_has_the_values_of_the_csv(opened, whole):
    page, rows = opened(whole), results(whole)
    shown = {row["id"]["value"]: row for row in page.value(TABLE)}
    assert list(shown) == list(rows)
    for name, row in rows.items():
        cells = shown[name]
        assert cells["batch"]["value"] == row["batch"]
        assert cells["seq"]["value"] == row["seq"]
        assert cells["planned_device_bytes"]["value"] == row["planned_device_bytes"]
        if row["status"] == "done":
            assert float(cells["tokens_per_second"]["value"]) == float(row["tokens_per_second"])
            assert cells["tokens_per_second"]["text"] == f"{float(row['tokens_per_second']):,.0f}"
            assert float(cells["step_seconds"]["value"]) == float(row["seconds"])
            assert cells["peak_bytes"]["value"] == row["peak_bytes"]
            assert float(re.match(r"[\d.]+", cells["peak_bytes"]["text"])[0]) == pytest.approx(
                int(row["peak_bytes"]) / 2**30, rel=0.01
            )
            assert float(cells["loss"]["text"]) == pytest.approx(float(row["loss"]), abs=1e-4)
        else:
            assert cells["tokens_per_second"]["text"] == "out of memory"
            assert cells["peak_bytes"]["text"] == ""
    quiet(page)


@pytest.mark.parametrize("axis", ["batches", "sequences"])
def test_the_bars_have_the_values_of_the_csv(opened, whole, axis):
    page, rows = opened(whole), results(whole)
    charts = page.value(CHARTS)
    key, other = ("batch", ("seq", "1024")) if axis == "batches" else ("seq", ("batch", "4"))
    swept = [row for row in rows.values() if row[other[0]] == other[1]]
    sizes = sorted({int(row[key]) for row in swept})
    titles = list(dict.fromkeys(row["title"] or row["strategy"] for row in swept))
    for kind in ("speed", "memory"):
        chart = charts[f"{axis}-{kind}"]
        assert chart["labels"] == sizes
        assert len(chart["sets"]) == len(titles)
    strategies = {s["name"]: s["title"] for s in json.loads((whole / "study.json").read_text())["strategies"]}
    seen = 0
    for row in swept:
        at = sizes.index(int(row[key]))
        speed, memory = (
            next(s for s in charts[f"{axis}-{kind}"]["sets"] if s["label"] == strategies[row["strategy"]])
            for kind in ("speed", "memory")
        )
        if row["status"] == "done":
            assert speed["data"][at] == float(row["tokens_per_second"])
            assert memory["data"][at] == int(row["peak_bytes"])
            assert speed["marks"][at] is None
            assert memory["marks"][at] is None
        else:  # marked as such, and no zero
            assert speed["data"][at] is None
            assert speed["marks"][at] == "out of memory"
            assert memory["data"][at] == int(row["planned_device_bytes"])
            assert memory["marks"][at].startswith("needs ")
        seen += 1
    assert seen == sum(len(s["data"]) for s in charts[f"{axis}-speed"]["sets"])


def test_the_other_charts_have_the_values_of_the_files(opened, whole):
    page = opened(whole)
    charts = page.value(CHARTS)
    left, right = json.loads(page.value("document.getElementById('data').textContent"))["pair"]
    assert left == "unfused-b4-s2048"
    assert right == "fused-b4-s2048"
    for name, side in ((left, "memory-left"), (right, "memory-right")):
        memory = json.loads((whole / "points" / name / "memory.json").read_text())
        sums = heights(charts[side])
        assert max(sums) == memory["peak_bytes"]
        assert charts[side]["sets"][0]["data"][-1]["x"] == max(phase["end"] for phase in memory["phases"])
    scales = page.value("['memory-left', 'memory-right'].map(id => Chart.getChart(id).scales.y.max)")
    assert scales[0] == scales[1]

    times = json.loads((whole / "points" / left / "times.json").read_text())
    assert sum(s["data"][0] for s in charts["step-time"]["sets"]) == pytest.approx(times["seconds"])
    assert sum(s["data"][1] for s in charts["step-time"]["sets"]) == pytest.approx(
        sum(r.get("floor_seconds", 0) for r in times["rows"])
    )

    rows = results(whole)
    waited = [row for row in rows.values() if row["copies_share"]]
    for place, key in enumerate(("compute_share", "copies_share", "update_share")):
        assert charts["waits"]["sets"][place]["data"] == [float(row[key]) for row in waited]

    point = json.loads((whole / "points" / left / "point.json").read_text())
    formula = charts["formulas"]["sets"][0]["data"]
    assert formula == [point["formulas"][key] for key in ("static_bytes", "checkpoints", "logits")]
    assert charts["formulas"]["sets"][1]["data"][2] == point["by_class"]["loss"]

    kernels = json.loads((whole / "kernels.json").read_text())
    fused = [row["full_ms"] / row["floor_ms"] for row in kernels if row["provider"] == "tigon"]
    assert charts["kernel-time"]["sets"][1]["data"] == pytest.approx(fused)
    assert charts["kernel-memory"]["sets"][0]["data"] == [
        row["peak_bytes"] for row in kernels if row["provider"] != "tigon"
    ]

    batches = [row for row in rows.values() if row["seq"] == "1024" and row["strategy"] == "fused"]
    line = next(s for s in charts["scaling-speed"]["sets"] if s["label"] == "Fused kernels")
    assert line["data"] == [{"x": int(row["batch"]), "y": float(row["tokens_per_second"])} for row in batches]


def test_hovering_tells_who_is_alive(opened, whole):
    page = opened(whole)
    memory = json.loads((whole / "points/unfused-b4-s2048/memory.json").read_text())
    b = memory["blocks"]
    peak_time = next(
        birth for name, birth in zip(b["name"], b["birth"], strict=True) if memory["names"][name] == "dlogits"
    )
    reading = "document.querySelector('#memory figure .reading').innerText"
    assert page.value(reading).startswith("21.4 GiB at the peak")
    spot = page.value(f"""(() => {{ const c = Chart.getChart('memory-left'), r = c.canvas.getBoundingClientRect();
        return [r.left + c.scales.x.getPixelForValue({peak_time + 500}), r.top + 150] }})()""")
    for x in (spot[0] - 150, spot[0]):
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=spot[1])
        page.frames()
        words = page.value(reading)
        if x == spot[0]:
            assert "loss · cross_entropy" in words
            assert "dlogits" in words
            assert "3.91 GiB" in words
        else:
            assert "forward · layers." in words
            assert "dlogits" not in words
    quiet(page)


def test_by_keyboard(opened, whole):
    page = opened(whole)
    said = "document.getElementById('said').textContent"

    def press(canvas, *keys):
        page.value(f"document.getElementById('{canvas}').focus()")
        for key in keys:
            page.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        page.frames()
        return page.value(said)

    assert press("memory-left", "ArrowLeft", "ArrowLeft").startswith("13.6 GiB")  # two births before the peak
    assert "at the peak" in press("memory-left", "ArrowLeft", "Home")
    assert "Fused kernels: 17,924 tokens/s" in press("batches-speed", "ArrowRight")
    assert "No fused kernels: out of memory: needs 33.8 GiB" in press("batches-memory", *["ArrowRight"] * 4)
    quiet(page)


def test_downloads(opened, whole, tmp_path):
    page = opened(whole)
    page.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))

    def saved(name):
        deadline = time.monotonic() + 30
        while not (tmp_path / name).exists() or any(tmp_path.glob("*.crdownload")):
            assert time.monotonic() < deadline, name
            time.sleep(0.05)
        return tmp_path / name

    page.value("document.querySelectorAll('#batches .tools button').forEach(button => button.click())")
    with open(saved("batches-speed.csv")) as file:
        rows = {(row["strategy"], row["batch"]): row for row in csv.DictReader(file)}
    wanted = [row for row in results(whole).values() if row["seq"] == "1024"]
    assert len(rows) == len(wanted)
    for row in wanted:
        assert rows[row["strategy"], row["batch"]]["status"] == row["status"]
        assert rows[row["strategy"], row["batch"]]["tokens_per_second"] == row["tokens_per_second"]
    assert saved("batches-memory.png").read_bytes().startswith(b"\x89PNG")
    page.value(
        "[...document.querySelectorAll('#results button')].find(b => b.textContent == 'Download as CSV').click()"
    )
    with open(saved("results.csv")) as file:
        assert [row["id"] for row in csv.DictReader(file)] == list(results(whole))
    quiet(page)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_width_and_colour(opened, whole, width, dark):
    page = opened(whole, width=width, dark=dark, phone=width < 500)
    assert page.value("document.documentElement.scrollWidth") <= width
    paper = "getComputedStyle(document.body).backgroundColor"
    before = page.value(paper)
    assert (before == "rgb(255, 255, 255)") != dark
    page.value("document.getElementById('theme').click()")
    page.frames()
    assert page.value(paper) != before
    assert page.value("Object.keys(Chart.instances).length") == page.value(
        "document.querySelectorAll('canvas[id]').length"
    )
    quiet(page)


def test_on_paper(opened, whole, tmp_path):
    page = opened(whole, height=900, dark=True)
    paper = page.call("Page.printToPDF", printBackground=True)["data"]
    assert len(paper) > 100_000
    assert page.value("document.documentElement.dataset.theme") == "dark"
    # All of it, also what the screen had not come to, is drawn.
    assert page.value("Object.keys(Chart.instances).length") == page.value(
        "document.querySelectorAll('canvas[id]').length"
    )
    quiet(page)


def test_a_partial_folder_shows_the_rest(opened, whole, tmp_path):
    folder = tmp_path / "partial"
    shutil.copytree(whole, folder)
    for name in ("fused-b16-s1024", "offload-b1-s1024"):
        shutil.rmtree(folder / "points" / name)
    (folder / "kernels.json").unlink()
    (folder / "points/fused-b4-s1024/point.json").write_text("{")
    (folder / "points/fused-b4-s2048/memory.json").write_text('{"format": "tigon-memory"}')
    (folder / "points/fused-b4-s2048/times.json").unlink()
    page = opened(folder)
    notes = page.value("document.getElementById('notes').innerText")
    for words in (
        "2 of 40 points are not there: fused-b16-s1024, offload-b1-s1024",
        "fused-b4-s1024/point.json is left out",
        "fused-b4-s2048/memory.json is left out",
    ):
        assert words in notes
    rows = {row["id"]["value"]: row for row in page.value(TABLE)}
    assert len(rows) == 40
    assert rows["fused-b16-s1024"]["tokens_per_second"]["text"] == "missing"
    charts = page.value(CHARTS)
    fused = next(s for s in charts["batches-speed"]["sets"] if s["label"] == "Fused kernels")
    assert [value is None for value in fused["data"]] == [False, True, False, True, False, False]
    assert fused["marks"] == [None] * 6  # missing is not out of memory
    assert "kernel-time" not in charts
    quiet(page)


def test_next_to_nothing(opened, tmp_path):
    folder = tmp_path / "begun"
    make_study(folder, batches=(1,), seqs=(1024,))
    shutil.rmtree(folder / "points")
    page = opened(folder)
    assert "4 of 4 points are not there" in page.value("document.getElementById('notes').innerText")
    assert len(page.value(TABLE)) == 4
    quiet(page)
    make_study(folder, batches=(1,), seqs=(1024,), strategies=[("fused", '<b>Fused</b> & "more"', "")])
    page = opened(folder)
    assert page.value("document.querySelector('#results-table tbody td').innerText") == '<b>Fused</b> & "more"'
    assert page.value(CHARTS).keys() >= {"memory-left", "step-time", "formulas"}
    quiet(page)


def test_odd_numbers(opened, tmp_path):
    """Files that are right and yet have nothing in them, or far too much."""
    make_study(tmp_path, batches=(1, 2), seqs=(1024,))
    points = tmp_path / "points"

    def change(path, **values):
        write(path, json.loads(path.read_text()) | values)

    nothing = dict.fromkeys(("median", "q20", "q80"), 0)
    for name, planned, measured in (
        ("fused-b1-s1024", 0, {"seconds": nothing, "tokens_per_second": nothing, "used_bytes": 0}),
        (
            "fused-b2-s1024",
            2**62,
            {"seconds": nothing, "tokens_per_second": nothing | {"median": 1e300}, "used_bytes": 2**62},
        ),
    ):
        change(
            points / name / "point.json",
            planned={"device": planned, "pinned": 0, "host": 0, "disk": 0},
            measured=measured,
            by_class={},
            alive_at_peak=[],
            batch=int(name[7]),
        )
    empty = timeline("fused", 1, 1)
    for column in empty["blocks"].values():
        column.clear()
    write(points / "unfused-b1-s1024/memory.json", empty | {"peak_bytes": 0, "total_bytes": 0, "phases": []})
    flat = {
        "name": [0, 0],
        "class": [5, 5],
        "bytes": [0, 7],
        "offset": [0, 0],
        "birth": [0, 0],
        "death": [0, 0],
        "place": [0, 0],
    }
    write(
        points / "fused-b1-s1024/memory.json", empty | {"blocks": flat, "phases": [], "names": ["x"], "unit": "events"}
    )
    change(points / "fused-b1-s1024/times.json", rows=[{"phase": "odd", "name": "x", "seconds": 0}], seconds=0)
    change(points / "fused-b2-s1024/times.json", rows=[])
    write(tmp_path / "kernels.json", [{"op": "x", "shape": "", "dtype": "", "provider": "else", "full_ms": 0}])
    change(tmp_path / "study.json", cap_bytes=0, machine={}, rates={}, model={}, created="not a date")
    page = opened(tmp_path)
    assert "notes" in page.value("document.querySelector('aside[hidden]').id")
    for canvas in ("memory-left", "memory-right"):
        page.value(f"""(() => {{ const select = document.querySelectorAll('#memory select');
            for (const choice of select) for (const option of choice.options) {{
              choice.value = option.value; choice.dispatchEvent(new Event('change')); }}
            document.getElementById('{canvas}').dispatchEvent(new KeyboardEvent('keydown', {{key: 'ArrowLeft'}})); }})()""")
        page.frames()
    quiet(page)


def test_bars_and_their_spread_are_on_the_chart(opened, tmp_path):
    """A quantile above every median, and a limit far above all that ran."""
    points = make_study(tmp_path, batches=(1, 4), seqs=(1024,), strategies=[("offload", "Offloaded", "")])
    path = tmp_path / "points/offload-b4-s1024/point.json"
    point = json.loads(path.read_text())
    fastest = 2 * point["measured"]["tokens_per_second"]["median"]
    point["measured"]["tokens_per_second"]["q80"] = fastest
    write(path, point)
    page = opened(tmp_path)
    assert page.value("Chart.getChart('batches-speed').scales.y.max") >= fastest
    highest = max(p["planned"]["device"] + p["measured"]["beyond_plan_bytes"] for p in points)
    for chart in ("batches-memory", "scaling-memory"):
        assert highest < page.value(f"Chart.getChart('{chart}').scales.y.max") < 1.1 * highest
    assert all(
        tick == int(tick) for tick in page.value("Chart.getChart('scaling-speed').scales.x.ticks.map(t => t.value)")
    )
    quiet(page)


def test_names_that_javascript_knows(opened, tmp_path):
    make_study(
        tmp_path,
        batches=(1, 2),
        seqs=(1024,),
        strategies=[("fused", "__proto__", ""), ("offload", "constructor", "")],
    )
    folder = tmp_path / "points/fused-b2-s1024"
    memory = json.loads((folder / "memory.json").read_text())
    memory["classes"] = ["constructor", "__proto__", *memory["classes"][2:]]
    write(folder / "memory.json", memory)
    odd = ("constructor", "__proto__", "hasOwnProperty")
    rows = [{"phase": name, "name": name, "seconds": 1, "floor_seconds": 0.5} for name in odd]
    write(folder / "times.json", json.loads((folder / "times.json").read_text()) | {"rows": rows})
    page = opened(tmp_path)
    page.value("document.querySelectorAll('details').forEach(part => part.open = true)")
    cells = page.value("[...document.querySelectorAll('#time td[data-column]')].map(cell => cell.innerText)")
    assert cells.count("1 s") == 6  # each in its phase and in all
    quiet(page)


def test_many_blocks_stay_exact(opened, tmp_path):
    folder = tmp_path / "many"
    make_study(folder, batches=(4,), seqs=(1024,))
    memory = timeline("unfused", 4, 1024, blocks_wanted=60000)
    events = 2 * len(memory["blocks"]["birth"])
    assert events > 100_000
    write(folder / "points/unfused-b4-s1024/memory.json", memory)
    page = opened(folder)
    chart = page.value(CHARTS)["memory-left"]
    sums = heights(chart)
    assert max(sums) == memory["peak_bytes"]  # one event among 10^5
    assert len(sums) < 2000
    # Every column has the largest sum of its events.
    b, changes = memory["blocks"], []
    for birth, death, size in zip(b["birth"], b["death"], b["bytes"], strict=True):
        changes.append((birth, 1, size))
        if death >= 0:
            changes.append((death, 0, -size))
    alive, times, totals = 0, [], []
    for at, _, change in sorted(changes):
        alive += change
        times.append(at)
        totals.append(alive)
    end = max(phase["end"] for phase in memory["phases"])
    columns, place, state = len(sums) - 1, 0, 0
    for column in range(columns):
        most = None
        while place < len(times) and times[place] <= end * column / columns:
            state = totals[place]
            place += 1
        most = state
        ahead = place
        while ahead < len(times) and times[ahead] < end * (column + 1) / columns:
            most = max(most, totals[ahead])
            ahead += 1
        assert sums[column] == most, column
    assert {s["label"] for s in chart["sets"]} < set(CLASSES)
    # Told, not asserted: machines differ.
    drawn, read = (
        page.value(f"""(() => {{ const canvas = document.getElementById('memory-left'), from = performance.now();
            for (let i = 0; i < 20; ++i) {what}; return (performance.now() - from) / 20; }})()""")
        for what in (
            "Chart.getChart(canvas).draw()",
            "canvas.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft'}))",
        )
    )
    print(f"{events} events: {drawn:.1f} ms to draw, {read:.1f} ms to read")
    quiet(page)


def test_a_plan_before_any_run(tigon, browser, tmp_path):
    file = tmp_path / "plan.html"
    said = tigon(
        "plan",
        "--model",
        "llama-bytes-1m",
        "--batch",
        4,
        "--seq",
        128,
        "--recompute",
        "block",
        "--fit",
        "64MiB",
        "--html",
        file,
    ).stdout
    assert f"The plan as a page is in {file}" in said
    total = int(re.search(r"^all .* (\d+)$", said, re.M)[1])
    page = browser.open(file, height=HIGH)
    charts = page.value(CHARTS)
    assert page.value("document.querySelector('#headline').innerText").startswith("This run will need")
    rows = {row["id"]["value"]: row for row in page.value(TABLE)}
    assert int(rows["planned"]["planned_device_bytes"]["value"]) == total
    assert int(rows["unfused"]["planned_device_bytes"]["value"]) > total
    sums = heights(charts["memory-right"])
    packing = int(
        page.value("document.querySelector('#class-table tr[data-id=planned] [data-column=packing]').dataset.value")
    )
    assert max(sums) == total - packing
    quiet(page)
    page.close()


def test_what_is_no_study(tigon, tmp_path):
    refused = tigon("report", tmp_path, check=False)
    assert refused.returncode == 2
    assert "this is no study" in refused.stderr
    assert not (tmp_path / "report.html").exists()
