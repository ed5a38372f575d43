"""Figures and controls of libgpucache.so for Python, under the names that torch.cuda has.

Put this file beside your program, or anywhere on PYTHONPATH. It needs nothing but the standard library, and works with every
framework, because the library is preloaded into the process and not part of one:

    LD_PRELOAD=libgpucache.so python train.py

    import gpucache
    with gpucache.phase("validation"):
        ...
    print(gpucache.max_memory_allocated())

Where the library is not preloaded, available() is False, figures are 0 and everything else does nothing.
A device is a number, an object with an `index` (such as torch.device), or None for the current one.
"""

import contextlib
import ctypes
import json
import os

__all__ = [
    "available", "version", "empty_cache", "memory_allocated", "max_memory_allocated", "memory_reserved",
    "max_memory_reserved", "memory_requested", "max_memory_requested", "reset_peak_memory_stats", "limit", "set_limit",
    "set_per_process_memory_fraction", "report", "memory_stats", "write_report", "mark", "phase",
]

_CURRENT = -1
_CONFIGURED = 2**64 - 1
_ERRORS = {-2: "an argument that cannot be", -3: "the file cannot be written"}

_int, _u64, _text = ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p
_SIGNATURES = {
    "version": (_text, []),
    "empty_cache": (_u64, []),
    "memory_allocated": (_u64, [_int]),
    "max_memory_allocated": (_u64, [_int]),
    "memory_reserved": (_u64, [_int]),
    "max_memory_reserved": (_u64, [_int]),
    "memory_requested": (_u64, [_int]),
    "max_memory_requested": (_u64, [_int]),
    "reset_peak": (_int, [_int]),
    "limit": (_u64, [_int]),
    "set_limit": (_int, [_int, _u64]),
    "stats_json": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_size_t]),
    "write_report": (_int, [_text]),
    "mark": (_int, [_text]),
}


def _load():
    """The functions by name; none where the library is not preloaded, or lacks one of them."""
    functions = {}
    try:
        process = ctypes.CDLL(None)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(process, "gpucache_" + name)
            function.restype, function.argtypes = result, arguments
            functions[name] = function
    except (AttributeError, OSError):
        return {}
    return functions


_functions = _load()


def _call(name, *arguments, otherwise=0):
    function = _functions.get(name)
    return function(*arguments) if function else otherwise


def _do(name, *arguments):
    """An action. True if it was done, False where the library serves nothing."""
    code = _call(name, *arguments, otherwise=-1)
    if code in _ERRORS:
        raise ValueError(f"gpucache.{name}: {_ERRORS[code]}")
    return code == 0


def _device(device):
    if device is None:
        return _CURRENT
    index = getattr(device, "index", device)
    if callable(index):  # str and the like have a method of that name
        raise TypeError(f"not a device: {device!r}")
    return _CURRENT if index is None else int(index)


def available():
    """Whether the library is preloaded."""
    return bool(_functions)


def version():
    """The library's version, or None."""
    text = _call("version", otherwise=None)
    return text.decode() if text else None


def empty_cache():
    """Gives idle memory back to the driver. Returns the bytes."""
    return _call("empty_cache")


def memory_allocated(device=None):
    """Bytes of the blocks in use."""
    return _call("memory_allocated", _device(device))


def max_memory_allocated(device=None):
    """The most bytes of blocks in use since reset_peak_memory_stats."""
    return _call("max_memory_allocated", _device(device))


def memory_reserved(device=None):
    """Bytes that the pool holds from the driver."""
    return _call("memory_reserved", _device(device))


def max_memory_reserved(device=None):
    """The most bytes that the pool held since reset_peak_memory_stats."""
    return _call("max_memory_reserved", _device(device))


def memory_requested(device=None):
    """Bytes that the program has asked for and not freed."""
    return _call("memory_requested", _device(device))


def max_memory_requested(device=None):
    """The most bytes asked for at once since reset_peak_memory_stats."""
    return _call("max_memory_requested", _device(device))


def reset_peak_memory_stats(device=None):
    """Starts the peaks of the functions above anew; the report's stay."""
    return _do("reset_peak", _device(device))


def limit(device=None):
    """The cap in bytes; 0 while the device is not in use."""
    return _call("limit", _device(device))


def set_limit(limit_bytes=None, device=None):
    """Changes the cap; None is the configured one, which is also the highest."""
    limit_now = _CONFIGURED if limit_bytes is None else int(limit_bytes)
    # ctypes takes what does not fit modulo 2**64, and the least negative number would be no cap at all.
    if not 0 <= limit_now <= _CONFIGURED:
        raise ValueError(f"gpucache.set_limit: {limit_bytes!r} is no number of bytes")
    return _do("set_limit", _device(device), limit_now)


def set_per_process_memory_fraction(fraction, device=None):
    """Changes the cap to a share of the device's memory. The device must be in use."""
    if not 0 <= fraction <= 1:
        raise ValueError("a fraction is between 0 and 1")
    if not available():
        return False
    index = _device(device)
    total = {of["ordinal"]: of["total_bytes"] for of in report().get("devices", [])}
    if index == _CURRENT and len(total) == 1:
        index = next(iter(total))
    if index not in total:
        raise ValueError("gpucache: this device is not in use yet; name one that is, or use set_limit")
    return set_limit(int(total[index] * fraction), index)


def report():
    """The report as of now, as a dict; empty where there is none."""
    size = _call("stats_json", None, 0)
    while size > 0:
        buffer = ctypes.create_string_buffer(size + 4096)
        needed = _call("stats_json", buffer, len(buffer))
        if needed < len(buffer):
            return json.loads(buffer.value) if needed else {}
        size = needed
    return {}


def memory_stats(device=None):
    """Figures of one device under torch.cuda.memory_stats' names, as far as they mean the same; 0 while it is not in use."""
    index = _device(device)
    devices = report().get("devices", [])
    if index == _CURRENT and len(devices) > 1:
        raise ValueError("gpucache: several devices are in use; name one")
    found = [of for of in devices if index in (of["ordinal"], _CURRENT)]
    of, stats = found[0] if found else {}, {}
    peaks = {"allocated": max_memory_allocated, "reserved": max_memory_reserved, "requested": max_memory_requested}
    for name, peak in peaks.items():
        gauge = of.get(name + "_bytes", {})
        key = name + "_bytes.all."
        stats[key + "current"] = gauge.get("current", 0)
        stats[key + "peak"] = peak(of["ordinal"]) if of else 0
        stats[key + "allocated"] = gauge.get("total_allocated", 0)
        stats[key + "freed"] = gauge.get("total_freed", 0)
    counts = of.get("counts", {})
    stats["allocation.all.allocated"] = counts.get("alloc", 0)
    stats["allocation.all.freed"] = counts.get("free", 0)
    stats["allocation.all.current"] = counts.get("alloc", 0) - counts.get("free", 0)
    stats["num_alloc_retries"] = counts.get("retry", 0)
    stats["num_ooms"] = counts.get("oom", 0)
    stats["num_device_alloc"] = counts.get("driver_alloc", 0)
    stats["num_device_free"] = counts.get("driver_free", 0)
    return stats


def write_report(path=None):
    """Writes the report as of now: as JSON to a file, or to where GPUCACHE_REPORT says."""
    return _do("write_report", None if path is None else os.fsencode(path))


def mark(name):
    """Begins a phase of the program; the report tells each one's peaks."""
    return _do("mark", str(name).encode())


@contextlib.contextmanager
def phase(name, then="(between phases)"):
    """A phase for the length of a `with` block; what follows goes by another name."""
    mark(name)
    try:
        yield
    finally:
        mark(then)
