"""Reads a memory snapshot as PyTorch's viewer does, and complains about whatever would break it.

The viewer starts from how the memory lies at the end and takes the events back one by one: every block must be in a segment
at every moment, what an event takes away must be there, and what it brings back must not. Prints how many events there are
of each kind.
"""

import collections
import pickle
import sys

FRAME = {"filename": str, "line": int, "name": str}
SEGMENT = {
    "device": int, "address": int, "total_size": int, "allocated_size": int, "active_size": int, "requested_size": int,
    "stream": int, "segment_type": str, "segment_pool_id": tuple, "is_expandable": bool, "frames": list, "blocks": list,
}
BLOCK = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
EVENT = {"action": str, "size": int, "stream": int, "time_us": int, "frames": list}


def has(what, form):
    for name, kind in form.items():
        assert type(what[name]) is kind, (name, what)


def check_segment(segment):
    has(segment, SEGMENT)
    assert segment["segment_type"] in ("small", "large")
    at = segment["address"]
    live = requested = 0
    for block in segment["blocks"]:
        has(block, BLOCK)
        assert block["address"] == at, block
        assert block["size"] > 0 and block["requested_size"] <= block["size"], block
        assert block["state"] in ("active_allocated", "active_pending_free", "inactive"), block
        if block["state"] == "active_allocated":
            live += block["size"]
            requested += block["requested_size"]
        at += block["size"]
    assert at == segment["address"] + segment["total_size"], segment
    assert (live, requested) == (segment["allocated_size"], segment["requested_size"]), segment


class Memory:
    """What is there at one moment."""

    def __init__(self, segments):
        self.segments = {s["address"]: s["total_size"] for s in segments}
        self.blocks = {}
        for segment in segments:
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    self.blocks[block["address"]] = [block["size"], False]

    def around(self, addr, size):
        for start, length in self.segments.items():
            if start <= addr and addr + size <= start + length:
                return start, length
        raise AssertionError(f"{size} bytes at {addr:#x} are in no segment")

    def check_all(self):
        for addr, (size, _) in self.blocks.items():
            self.around(addr, size)

    def bring(self, addr, size, merge):
        for start, length in self.segments.items():
            assert addr + size <= start or start + length <= addr, "two segments in one place"
        if merge:
            if addr + size in self.segments:
                size += self.segments.pop(addr + size)
            for start, length in list(self.segments.items()):
                if start + length == addr:
                    addr, size = start, size + self.segments.pop(start)
        self.segments[addr] = size

    def take(self, addr, size, merge):
        if not merge:
            assert self.segments.pop(addr) == size, "another segment"
        else:
            start, length = self.around(addr, size)
            del self.segments[start]
            if start < addr:
                self.segments[start] = addr - start
            if addr + size < start + length:
                self.segments[addr + size] = start + length - addr - size
        for block in self.blocks:
            assert not addr <= block < addr + size, "a block without a segment"

    def take_back(self, event):
        action, size = event["action"], event["size"]
        if action == "oom":
            assert type(event["device_free"]) is int and "addr" not in event, event
            return
        addr = event["addr"]
        if action == "free_completed":
            assert addr not in self.blocks, "freed, and still there"
            self.around(addr, size)
            self.blocks[addr] = [size, True]
        elif action == "free_requested":
            assert self.blocks[addr][1], "the halves of a free belong together"
            self.blocks[addr][1] = False
        elif action == "alloc":
            assert not self.blocks.pop(addr)[1], "allocated, and being freed"
        elif action in ("segment_free", "segment_unmap"):
            self.bring(addr, size, action == "segment_unmap")
        elif action in ("segment_alloc", "segment_map"):
            self.take(addr, size, action == "segment_map")
        else:
            raise AssertionError(f"no action: {action}")


def main(path):
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    assert set(snapshot) == {"segments", "device_traces", "allocator_settings"}, set(snapshot)
    assert all(type(k) is str and type(v) is str for k, v in snapshot["allocator_settings"].items())
    for segment in snapshot["segments"]:
        check_segment(segment)
    kinds = collections.Counter()
    for device, trace in enumerate(snapshot["device_traces"]):
        memory = Memory([s for s in snapshot["segments"] if s["device"] == device])
        assert [e["time_us"] for e in trace] == sorted(e["time_us"] for e in trace)
        for number, event in enumerate(reversed(trace)):
            has(event, EVENT)
            for frame in event["frames"]:
                has(frame, FRAME)
            kinds[event["action"]] += 1
            try:
                memory.take_back(event)
                if number % 50 == 0:
                    memory.check_all()
            except (AssertionError, KeyError) as error:
                raise SystemExit(f"event {len(trace) - 1 - number} of {len(trace)}, {event}: {error!r}") from error
        memory.check_all()
    assert kinds["free_requested"] == kinds["free_completed"]
    print(*(f"{kind}={count}" for kind, count in kinds.items()), f"free={kinds['free_requested']}")


main(sys.argv[1])
