"""The snapshot, the trace and the events of a run, read as those who show them read them.

The rules of the snapshot are those of PyTorch's page (torch/utils/viz/MemoryViz.js) and of torch.cuda._memory_viz."""

import gzip
import itertools
import json
import pickle
import pickletools
import re
import struct
from collections import Counter, defaultdict

import pytest
import torch.cuda._memory_viz as memory_viz
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

RUN = ["--model", "llama-bytes-1m", "--batch", 2, "--seq", 32, "--steps", 4, "--no-gemm-ceiling", "--threads", 1]
KINDS = {
    "plain": [],
    "unfused": ["--fused", "none"],
    "micro-batches": ["--accumulate", 3, "--recompute", "selective"],
    "early": ["--update-early", "--clip", 0, "--precision", "bf16-sr"],
    "offloaded": ["--offload", "all+checkpoints", "--recompute", "block", "--accumulate", 2, "--order", "layers"],
}


@pytest.fixture(scope="module", params=KINDS)
def recorded(request, tigon, tmp_path_factory):
    """A run's kind, output, snapshot file and trace."""
    folder = tmp_path_factory.mktemp("recorded")
    snapshot, trace = folder / "memory.pickle", folder / "run.pt.trace.json.gz"
    output = tigon("train", *RUN, *KINDS[request.param], "--snapshot", snapshot, "--trace", trace).stdout
    assert "the trace of steps 2 to 4 is in" in output
    return request.param, output, snapshot, json.loads(gzip.decompress(trace.read_bytes()))


def planned(output):
    """The bytes of the device's table: all, without what packing could not fill."""
    table = dict(re.findall(r"^(packing|all) +.* (\d+)$", output.split("\n\n")[1], re.M))
    return int(table["all"]), int(table["all"]) - int(table["packing"])


def test_the_pickle_is_one_that_the_page_reads(recorded):
    known = {
        "PROTO", "APPEND", "APPENDS", "LIST", "TUPLE", "NEWFALSE", "NEWTRUE", "NONE", "BINGET", "BININT", "BININT1",
        "BININT2", "EMPTY_DICT", "EMPTY_LIST", "FRAME", "LONG1", "LONG_BINGET", "MARK", "MEMOIZE", "BINPUT",
        "SETITEMS", "SHORT_BINUNICODE", "BINUNICODE", "STOP", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
        "BINFLOAT", "LONG_BINPUT", "DICT", "SETITEM",
    }  # fmt: skip
    depth, counts = [], []
    for opcode, argument, _ in pickletools.genops(recorded[2].read_bytes()):
        assert opcode.name in known
        assert opcode.name != "PROTO" or 2 <= argument <= 4
        # Values on the stack since the last mark: what one batch hands over at once.
        if opcode.name == "MARK":
            depth.append(0)
        elif opcode.name in ("APPENDS", "SETITEMS"):
            counts.append(depth.pop())
        elif depth and opcode.name not in ("LONG_BINPUT", "STOP"):
            depth[-1] += 1
    assert max(counts) <= 2000  # of dictionaries a key and a value
    assert len(counts) > 100


def test_every_byte_of_a_step_is_born_and_dies_in_its_place(recorded):
    kind, output, path, _ = recorded
    total, most = planned(output)
    snapshot = pickle.loads(path.read_bytes())
    segments, (events,) = snapshot["segments"], snapshot["device_traces"]
    assert sum(s["total_size"] for s in segments) == total

    alive = {}
    for segment in segments:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            assert block["size"] > 0
            if block["state"] == "active_allocated":
                alive[at] = block["size"]
                assert 0 <= block["size"] - block["requested_size"] < 256
            else:
                assert block["state"] == "inactive"
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]

    # As the page does it: from what is alive at the end, back.
    there = {s["address"]: s["total_size"] for s in segments}
    requested, peak, deaths = {}, 0, 0
    for event in reversed(events):
        address, size = event["addr"], event["size"]
        if event["action"] == "free_completed":
            assert address not in alive
            end = min((a for a in alive if a >= address), default=address + size)
            start = max((a + s for a, s in alive.items() if a < address), default=address)
            assert start <= address, "two blocks share bytes"
            assert address + size <= end, "two blocks share bytes"
            assert any(a <= address and address + size <= a + s for a, s in there.items())
            alive[address] = requested[address] = size
            deaths += 1
        elif event["action"] == "free_requested":
            assert requested.pop(address) == size
        elif event["action"] == "alloc":
            peak = max(peak, sum(alive.values()))
            assert alive.pop(address) == size
        else:
            assert event["action"] == "segment_alloc"
            assert there.pop(address) == size
    assert not alive
    assert not there
    assert peak == most
    assert deaths > 50
    times = [event["time_us"] for event in events]
    assert times == sorted(times)

    # What stays is not freed, all else is.
    stays = [e for e in events if any(f["name"] == "stays from step to step" for f in e.get("frames", ()))]
    assert Counter(e["action"] for e in events)["alloc"] == deaths + len(stays)
    categories = {e["category"] for e in events if "category" in e}
    assert categories >= {"unknown", "weights", "gradients", "activations", "layer inputs", "loss"}
    assert ("states" in categories) == (kind != "offloaded")


def test_frames_name_tensor_stage_and_layer(recorded):
    events = pickle.loads(recorded[2].read_bytes())["device_traces"][0]
    within = defaultdict(set)
    for event in events:
        if event["action"] == "alloc":
            names = [frame["name"] for frame in event["frames"]]
            assert all(set(f) == {"filename", "line", "name"} and isinstance(f["line"], int) for f in event["frames"])
            within[names[0]].add(" < ".join(names[1:]))
    # Two kinds of blocks: what stays, and what was born in the recorded step.
    assert all(w == "stays from step to step" or w.endswith("step.2") for ways in within.values() for w in ways)
    assert any("qkv < layers.1 < forward < step.2" in w for w in within["layers.1.qkv"])
    gradient = "stays from step to step" if recorded[0] == "micro-batches" else "down < backward < layers.1 < step.2"
    assert any(gradient in w for w in within["layers.1.down.grad"])


def test_pytorchs_tools_open_the_snapshot(recorded):
    snapshot = pickle.loads(recorded[2].read_bytes())
    assert "Summary of segments" in memory_viz.segsum(snapshot)
    assert "Device 0" in memory_viz.trace(snapshot)
    for plot in (memory_viz.trace_plot, memory_viz.segment_plot):
        assert "MemoryViz.js" in plot(snapshot)


def test_the_trace_has_steps_stages_ops_and_memory(recorded):
    kind, output, _, trace = recorded
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    steps = {e["name"]: e for e in spans if e["cat"] == "user_annotation"}
    assert list(steps) == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    ends = [(s["ts"], s["ts"] + s["dur"]) for s in steps.values()]
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ends))
    assert len({e["args"]["External id"] for e in spans}) == len(spans)

    main = next(iter(steps.values()))["tid"]
    names = Counter(e["name"] for e in spans if e["tid"] == main)
    micros = {"micro-batches": 3, "offloaded": 2}.get(kind, 1)
    assert names["fused_linear_cross_entropy_forward"] == (0 if kind == "unfused" else 3 * micros)
    assert (names["reduce"] > 0) == (kind == "unfused")
    assert names["attention"] >= 3 * 4 * micros
    assert names["layers.0"] == 3 * (1 if kind == "offloaded" else micros) * 2  # forward and backward
    assert names["linear_forward"] > 0
    # Spans of a thread nest: each begins and ends within the one around it.
    for thread in {e["tid"] for e in spans}:
        around = []
        for span in sorted((e for e in spans if e["tid"] == thread), key=lambda e: (e["ts"], -e["dur"])):
            while around and around[-1] <= span["ts"] + 1e-3:
                around.pop()
            assert not around or span["ts"] + span["dur"] <= around[-1] + 2e-3, span
            around.append(span["ts"] + span["dur"])
    others = {e["name"].split(".")[0] for e in spans if e["tid"] != main}
    others = {name for name in others if not name.startswith("wait for ")}  # where others are late, on a busy machine
    assert others == (
        {
            "copy to the device",
            "copy to the host",
            "copy of a layer's input to the device",
            "update on the host",
            "adamw",
        }
        if kind == "offloaded"
        else set()
    )
    assert (names["adamw"] > 0) == (kind != "offloaded")
    threads = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert threads == ({"steps"} | (others - {"adamw"}))

    total, most = planned(output)
    counter = [e["args"]["bytes"] for e in trace["traceEvents"] if e["ph"] == "C" and e["name"] == "memory"]
    assert max(counter) == most
    memory = [e["args"] for e in trace["traceEvents"] if e["name"] == "[memory]"]
    assert max(m["Total Allocated"] for m in memory) == most
    assert {m["Total Reserved"] for m in memory} == {total}
    by_class = defaultdict(int)
    for e in trace["traceEvents"]:
        if e["ph"] == "C" and e["name"].startswith("memory: "):
            by_class[e["name"]] = e["args"]["bytes"]
    assert sum(by_class.values()) == counter[-1]


def test_tensorboards_profiler_reads_the_trace(recorded, tmp_path):
    data = pytest.importorskip("torch_tb_profiler.profiler.data")
    path = tmp_path / "run.pt.trace.json"
    path.write_text(json.dumps(recorded[3]))
    profile = data.RunProfileData.parse("worker", "1", str(path), str(tmp_path))
    assert profile.steps_names == ["2", "3", "4"]
    assert profile.memory_snapshot.get_peak_memory().popitem()[1] == planned(recorded[1])[1]


def test_holistic_trace_analysis_reads_the_trace(recorded, tmp_path):
    analysis = pytest.importorskip("hta.trace_analysis")
    path = tmp_path / "run.pt.trace.json"
    path.write_text(json.dumps(recorded[3]))
    traces = analysis.TraceAnalysis(trace_files={0: str(path)}).t
    spans = [e for e in recorded[3]["traceEvents"] if e["ph"] == "X"]
    last = next(e["ts"] for e in spans if e["name"] == "ProfilerStep#4")
    assert list(traces.get_iterations(0)) == [2, 3]  # it leaves the last out
    names = traces.get_trace(0)["name"].map(dict(enumerate(traces.symbol_table.get_sym_table())))
    assert Counter(names) == Counter(e["name"] for e in spans if e["ts"] < last)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data, at = path.read_bytes(), 0
    while at < len(data):
        (length, check) = struct.unpack_from("<QI", data, at)
        assert check == masked(data[at : at + 8])
        event = data[at + 12 : at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(event)
        yield event
        at += length + 16


def test_tensorboard_shows_what_the_log_says_and_goes_on_after_a_resume(tigon, tmp_path):
    assert crc32c(b"123456789") == 0xE3069283
    text = tmp_path / "text"
    text.write_text("It is a truth universally acknowledged. " * 100)
    run = ["train", "--model", "llama-bytes-1m", "--batch", 2, "--seq", 16, "--no-gemm-ceiling", "--data", text,
           "--eval-fraction", 0.2, "--eval-every", 3, "--schedule", "constant", "--checkpoints", tmp_path / "run",
           "--log", tmp_path / "log", "--tensorboard", tmp_path / "tb"]  # fmt: skip
    tigon(*run, "--steps", 5)
    tigon(*run, "--steps", 8, "--resume")
    files = sorted((tmp_path / "tb").iterdir())
    assert len(files) == 2
    assert [len(list(records(file))) for file in files] == [2 + 5 + 2, 2 + 3 + 2]
    assert all(b"brain.Event:2" in next(records(file)) for file in files)

    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    for tag, field in {"train/loss": "loss", "train/grad_norm": "grad_norm", "train/learning_rate": "lr",
                       "speed/tokens_per_second": "tokens_per_second", "evaluation/loss": "eval_loss"}.items():  # fmt: skip
        shown = [(s.step, s.value) for s in events.Scalars(tag)]
        said = [(line["step"], pytest.approx(line[field], rel=1e-6)) for line in log if field in line]
        assert shown == said, tag
