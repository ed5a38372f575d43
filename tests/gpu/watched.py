"""Programs to be watched, and what is looked at afterwards.

`watched.py cupy|jax`: a few seconds of allocations. `killed`: holds 3 GiB and kills itself. `api`: uses the library's functions.
`pid FILE`: the process in the output of `gpucache top --json` that holds memory. `check REPORT PAGE PICKLE TRACE`: looks at
what the tool has made of a report; the pickle with PyTorch's own viewer, where there is PyTorch.
"""

import json
import os
import pickle
import signal
import sys
import time

MIB = 1 << 20
SECONDS = 6


def use_cupy():
    import cupy

    cupy.cuda.set_allocator(None)
    end = time.monotonic() + SECONDS
    total = cupy.zeros(1)
    while time.monotonic() < end:
        blocks = [cupy.full((size * MIB // 4,), size, dtype=cupy.float32) for size in (1, 2, 5, 16, 40)]
        total += sum(float(block[-1]) for block in blocks)
    print(f"RESULT {float(total[0]) % 64:.0f}")


def use_jax():
    import jax
    import jax.numpy as jnp

    add = jax.jit(lambda a, b: (a @ b).sum())
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for side in (256, 1024, 2048):
            value = float(add(jnp.ones((side, side)), jnp.ones((side, side))))
            assert value == side**3, value
    print("RESULT good")


def be_killed():
    import torch

    blocks = [torch.zeros(1 << 28, device="cuda") for _ in range(3)]
    torch.cuda.synchronize()
    print(f"pid {os.getpid()}", flush=True)
    assert len(blocks) == 3
    os.kill(os.getpid(), signal.SIGKILL)


def use_api():
    import gpucache
    import torch

    assert gpucache.available(), "the library is not there"
    with gpucache.phase("warm-up"):
        block = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
    before = gpucache.memory_allocated()
    assert before >= 64 * MIB, before
    with gpucache.phase("more"):
        gpucache.reset_peak_memory_stats()
        for _ in range(100):
            other = torch.ones(32 * MIB, dtype=torch.uint8, device="cuda")
            del other
    assert gpucache.max_memory_allocated() >= before + 32 * MIB
    assert gpucache.memory_allocated() == before, (gpucache.memory_allocated(), before)
    torch.cuda.synchronize()
    gpucache.empty_cache()
    held = gpucache.memory_reserved()
    assert held < before + 32 * MIB, held
    gpucache.set_limit(held + 16 * MIB)
    try:
        torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
        raise AssertionError("more than the cap was given")
    except RuntimeError as error:  # of which class depends on whether PyTorch's own cache is on
        assert "out of memory" in str(error), error
    gpucache.set_limit(None)
    assert torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")[-1].item() == 0
    phases = {phase["name"] for device in gpucache.report()["devices"] for phase in device["phases"]}
    assert {"warm-up", "more"} <= phases, phases
    assert block.sum().item() == 0
    print("RESULT good")


def pid_of(path):
    text = open(path).read()
    for line in text.splitlines():
        for row in json.loads(line)["rows"]:
            if row["reserved_bytes"] and row["state"] == "running":
                print(row["pid"])
                return 0
    return 1


def check(report, page, snapshot, trace):
    data = json.load(open(report))
    device = data["devices"][0]
    events, sites = data["history"]["events"], device["sites"]
    assert len(events) > 2 and device["segments"], "no history"
    text = open(page).read()
    assert "<svg" in text and "http://" not in text.replace("http://www.w3.org", ""), "the page is not of one piece"
    spans = json.load(open(trace))
    spans = spans["traceEvents"] if isinstance(spans, dict) else spans
    assert any(event.get("ph") == "C" for event in spans), "no counters in the trace"
    memory = pickle.load(open(snapshot, "rb"))
    assert memory["segments"] is not None and any(memory["device_traces"]), "an empty snapshot"
    viewer = "not_looked_at_by_PyTorch"
    try:
        from torch.cuda import _memory_viz

        assert len(_memory_viz.trace_plot(memory)) > 1000 and len(_memory_viz.segment_plot(memory)) > 1000
        assert _memory_viz.segsum(memory) and _memory_viz.trace(memory)
        viewer = "PyTorch's_viewer_takes_it"
    except ImportError:
        pass
    held = sites["all"]
    print(
        f"summary {len(events)}_events,_{len(device['segments'])}_segments_at_the_end,_{len(sites['sites'])}_sites_of_"
        f"{held['samples']}_samples,_page_{len(text) >> 10}_KiB,_{len(spans)}_trace_events,_snapshot:_{viewer}"
    )


def main():
    what, *rest = sys.argv[1:]
    one = {"cupy": use_cupy, "jax": use_jax, "killed": be_killed, "api": use_api, "pid": pid_of, "check": check}[what]
    sys.exit(one(*rest))


main()
