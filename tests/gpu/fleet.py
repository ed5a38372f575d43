#!/usr/bin/env python3
"""What a monitored fleet gets from the library: alarms and figures for Prometheus, of jobs whose memory is known.

`fleet.py job KIND` with KIND among torch, cupy, jax, driver (cuMemAlloc) and managed (memory outside the pool): cuts memory into
pieces, then holds 2,304 MiB and lets some more come and go until its figures in GPUCACHE_PROM have been renewed, of
which it leaves a copy in GPUCACHE_PROM.while. Ends holding all that.

`fleet.py check FOLDER NAME ALARM… [-- ALARM…]`: what the job NAME has left in FOLDER: NAME.json (report), NAME.err, NAME.jsonl
(alarms), NAME.prom and NAME.commands (a file for each command). The first alarms must have been raised, the others not.
Prints `summary …`; status 1, and why, if anything is not as documented.
"""

import ctypes
import json
import os
import re
import shutil
import sys
import time

import prom_file

MIB, GIB = 1 << 20, 1 << 30
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": GIB}
STEP, STEPS = 256, 9


def of_torch():
    import torch

    def take(mib):
        return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")

    # With a cache of its own, PyTorch calls only when that is empty.
    return take, torch.cuda.empty_cache


def of_cupy():
    import cupy

    cupy.cuda.set_allocator(None)
    return lambda mib: cupy.empty(mib * MIB, dtype=cupy.uint8), lambda: None


def of_jax():
    import jax.numpy as jnp

    return lambda mib: jnp.zeros(mib * MIB, dtype=jnp.uint8).block_until_ready(), lambda: None


class Block:
    """Memory that goes with its last name, as the frameworks' arrays do."""

    def __init__(self, cuda, mib, managed):
        self.cuda, self.address = cuda, ctypes.c_uint64()
        where, size = ctypes.byref(self.address), ctypes.c_size_t(mib * MIB)
        code = cuda.cuMemAllocManaged(where, size, 1) if managed else cuda.cuMemAlloc_v2(where, size)
        assert code == 0, f"error {code}"

    def __del__(self):
        self.cuda.cuMemFree_v2(self.address)


def of_driver(managed=False):
    cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    return lambda mib: Block(cuda, mib, managed), lambda: None


def written(path):
    """When the figures were written; 0 if they are not there yet."""
    try:
        return prom_file.read(path).figure("last_update_timestamp_seconds")
    except FileNotFoundError:
        return 0


def job(kind):
    kinds = {"torch": of_torch, "cupy": of_cupy, "jax": of_jax, "driver": of_driver}
    take, forget = of_driver(managed=True) if kind == "managed" else kinds[kind]()
    pieces = [take(2) for _ in range(200)]
    del pieces[::2]
    held = [pieces, take(30)]
    held += [take(STEP) for _ in range(STEPS)]
    path = os.environ["GPUCACHE_PROM"]
    first, end = written(path), time.monotonic() + 9
    while written(path) == first and time.monotonic() < end:
        for _ in range(100):
            take(3)
        forget()
        time.sleep(0.01)
    shutil.copy(path, path + ".while")
    print(f"RESULT {len(held)}", flush=True)
    os._exit(0)


def said(alarm):
    """How an alarm is worded, as a pattern, and its threshold in bytes (a share of the cap, or none: as it is)."""
    name, value = alarm.split(":")
    if name == "leak":
        return rf"a leak: .* for {value} minutes in a row", None
    if name == "fragmentation":
        return rf"fragmentation above {value}", float(value)
    found = re.match(r"(\d+)(MiB|GiB)$", value)
    if not found:
        return rf"{name} above {re.escape(value)} of the cap", float(value)
    size = int(found[1]) * UNITS[found[2]]
    text = f"{size / GIB:.2f} GiB" if size >= GIB else f"{size / MIB:.2f} MiB"
    return rf"{name} above {re.escape(text)}" + (" a minute" if name == "growth" else ""), size


def in_bytes(text):
    """A size as people read it, and by how much it may be rounded."""
    number, unit = text.split(" ")
    return float(number) * UNITS[unit], 0.0051 * UNITS[unit]


def check_value(alarm, seen, line):
    """What was seen is above the threshold, and is what the line says besides."""
    name, (_, threshold) = alarm.split(":")[0], said(alarm)
    if name == "fragmentation":
        assert threshold < float(seen.split(":")[0]) <= 1, seen
        return
    size, rounded = in_bytes(seen.split(" of ")[0])
    figure = {"held": line["reserved_bytes"] + line["external_bytes"]}.get(name) or line[f"{name}_bytes"]
    assert abs(figure - size) <= rounded, f"{alarm}: '{seen}', but {figure} bytes"
    if " of " in seen:
        cap, rounded = in_bytes(seen.split(" of ")[1])
        assert abs(cap - line["limit_bytes"]) <= rounded, f"{alarm}: {seen}, but a cap of {line['limit_bytes']}"
        threshold *= line["limit_bytes"]
    assert figure > threshold, f"{alarm}: raised at {figure} bytes"


def of_commands(folder, number):
    """The environments of that many commands, for whose end nobody waits."""
    end = time.monotonic() + 5
    while True:
        texts = [open(os.path.join(folder, name), encoding="utf-8").read() for name in sorted(os.listdir(folder))]
        if time.monotonic() > end or len(texts) >= number and all(text.endswith("DONE=1\n") for text in texts):
            return [dict(line.split("=", 1) for line in text.splitlines() if "=" in line) for text in texts]
        time.sleep(0.1)


def check_commands(folder, lines):
    """Each alarm has had its command, with the same facts in its environment and nothing of the library's."""
    commands = of_commands(folder, len(lines))
    texts = sorted(line["text"] for line in lines)
    assert sorted(one.get("ALERT_TEXT", "") for one in commands) == texts, f"commands for {commands}"
    for line in lines:
        environment = next(one for one in commands if one["ALERT_TEXT"] == line["text"])
        for key, value in line.items():
            name = "ALERT_" + {"alert": "name"}.get(key, key).upper()
            assert environment.get(name) == str(value), f"{name}={environment.get(name)}, not {value}"
        foreign = [name for name in environment if name == "LD_PRELOAD" or name.startswith("GPUCACHE_")]
        assert not foreign, f"the command was given {foreign}"
        assert environment.get("FLEET") == "kept", "the program's own environment is lost"


def check_alarms(folder, name, loud, quiet, report):
    """The same alarms on stderr, in the file, in the notes and by commands: those that had to come, and no others."""
    with open(os.path.join(folder, f"{name}.err"), encoding="utf-8") as file:
        found = re.findall(r"^gpucache\[(\d+)\]: alert: GPU (\d+): (.*)$", file.read(), re.M)
    with open(os.path.join(folder, f"{name}.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    pid, now = report["process"]["pid"], time.time()
    on_stderr = [(int(process), int(device), text) for process, device, text in found]
    assert on_stderr == [(line["pid"], line["device"], line["text"]) for line in lines], f"stderr {found}, file {lines}"
    assert {line["pid"] for line in lines} == {pid}, f"of other processes than {pid}"
    for line in lines:
        assert now - report["process"]["duration_s"] - 600 < line["time"] <= now, f"at {line['time']}"
    for alarm in loud:
        pattern = said(alarm)[0]
        raised = [line for line in lines if re.match(rf"{pattern}: ", line["text"])]
        # How the pool lies may cease to be out of the ordinary and begin again; what is held only grows.
        assert len(raised) == 1 or raised and alarm.startswith("fragmentation"), f"{alarm} was raised {len(raised)} times"
        for line in raised:
            assert line["alert"] == alarm.split(":")[0], line
            check_value(alarm, re.sub(rf"^{pattern}: ", "", line["text"]), line)
        assert any(re.search(f"^alert on GPU 0: {pattern}$", note) for note in report["notes"]), f"no note of {alarm}"
    for alarm in quiet:
        assert not [line for line in lines if re.match(said(alarm)[0], line["text"])], f"{alarm} was raised"
    check_commands(os.path.join(folder, f"{name}.commands"), lines)
    return len(lines)


def check_figures(folder, name, report):
    """The figures for Prometheus: while it ran, at the end, and in the report."""
    path = os.path.join(folder, f"{name}.prom")
    last, before = prom_file.read(path), prom_file.read(path + ".while")
    exact, total = prom_file.against_report(last, report)
    assert (before.figure("process_running"), last.figure("process_running")) == (1, 0), "does it run?"
    assert before.figure("last_update_timestamp_seconds") <= last.figure("last_update_timestamp_seconds") <= time.time()
    fallen = [key for key in before.series if before.families[key[0]][0] == "counter" and before.series[key] > last.series[key]]
    assert not fallen, f"counters that fell: {fallen}"
    for metrics in (before, last):
        held = metrics.figure("memory_requested_bytes", device="0") + metrics.figure("memory_external_bytes", device="0")
        assert STEP * STEPS * MIB <= held, f"{held} bytes in use"
    return f"{total} figures agree with the report, {exact} exactly"


def check(folder, name, *alarms):
    at = alarms.index("--") if "--" in alarms else len(alarms)
    with open(os.path.join(folder, f"{name}.json"), encoding="utf-8") as file:
        report = json.load(file)
    try:
        raised = check_alarms(folder, name, alarms[:at], alarms[at + 1 :], report)
        print(f"summary {raised} alarms, {check_figures(folder, name, report)}")
    except AssertionError as error:
        sys.exit(f"{name}: {error}")


if __name__ == "__main__":
    {"job": job, "check": check}[sys.argv[1]](*sys.argv[2:])
