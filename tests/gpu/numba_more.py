"""What Numba does with the driver beside allocating: `numba_more.py PART` with PART among
  streams   work handed from stream to stream by events, per-thread streams, pinned, mapped and managed memory
  ipc       arrays opened by another process, which reads and writes them
  close     cuda.close() with arrays held, and going on after it
  reset     the context's own reset, and going on after it
Prints RESULT lines that must not depend on the allocator. Ends with status 7 if this Numba cannot share arrays.
"""

import multiprocessing
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy
from numba_here import cuda
from outcome import attempt, digest


def new_kernel():
    """A kernel of its own each time: what was loaded before a reset is gone."""

    @cuda.jit
    def mix(a, out, number):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = a[out.size - 1 - i] * 3 + number

    return mix


def blocks(size):
    return (size + 255) // 256


def hand_over(kernel, first, second, rounds):
    """`first` makes numbers, `second` uses them after an event; the arrays go while the work is under way."""
    results = []
    for i in range(rounds):
        size = 1_000 + (i * 7919) % 300_000
        numbers = cuda.to_device(numpy.arange(size, dtype=numpy.int64), stream=first)
        made = cuda.device_array(size, numpy.int64, stream=first)
        kernel[blocks(size), 256, first](numbers, made, i)
        ready = cuda.event(timing=False)
        ready.record(first)
        ready.wait(second)
        out = cuda.device_array(size, numpy.int64, stream=second)
        kernel[blocks(size), 256, second](made, out, i + 1)
        del numbers, made
        results.append(out.copy_to_host(stream=second))
        second.synchronize()
    first.synchronize()
    return digest(*results)


def streams():
    kernel = new_kernel()

    def threads():
        def work(at):
            return hand_over(kernel, cuda.per_thread_default_stream(), cuda.stream(), 30 + at)

        with ThreadPoolExecutor(4) as executor:
            return list(executor.map(work, range(4)))

    def events():
        stream, start, end = cuda.stream(), cuda.event(), cuda.event()
        start.record(stream)
        numbers = cuda.to_device(numpy.ones(1 << 20, numpy.int64), stream=stream)
        out = cuda.device_array_like(numbers)
        kernel[blocks(numbers.size), 256, stream](numbers, out, 1)
        end.record(stream)
        end.synchronize()
        return end.query(), 0 <= cuda.event_elapsed_time(start, end) < 10_000, int(out.copy_to_host().sum())

    def host_side():
        size, stream = 100_000, cuda.stream()
        pinned, mapped = cuda.pinned_array(size, numpy.int64), cuda.mapped_array(size, numpy.int64)
        managed = cuda.managed_array(size, numpy.int64)
        pinned[:], mapped[:], managed[:] = numpy.arange(size), numpy.arange(size) * 2, 0
        cuda.synchronize()
        on_device = cuda.to_device(pinned, stream=stream)
        kernel[blocks(size), 256, stream](on_device, managed, 5)
        kernel[blocks(size), 256, stream](managed, mapped, 6)
        stream.synchronize()
        cuda.synchronize()
        return digest(numpy.asarray(mapped), numpy.asarray(managed))

    def deferred():
        with cuda.defer_cleanup():
            value = hand_over(kernel, cuda.stream(), cuda.stream(), 20)
        return value

    attempt("own", lambda: hand_over(kernel, cuda.stream(), cuda.stream(), 150))
    attempt("legacy", lambda: hand_over(kernel, cuda.legacy_default_stream(), cuda.stream(), 50))
    attempt("threads", threads)
    attempt("events", events)
    attempt("host-side", host_side)
    attempt("deferred", deferred)


SIZES = (128, 16_000, 262_144, 262_144, 786_432, 3_000_000, 1_024, 524_288)


def importer(handles, raw, results):
    """Reads and changes each array, by its pickled handle and by the handle's bytes."""

    def change(array, number):
        host = array.copy_to_host()
        out = cuda.to_device(host + number)
        array.copy_to_device(out)
        cuda.synchronize()
        return digest(host)

    def pickled(handle, number):
        with handle as array:
            return change(array, number)

    def by_bytes(data, size, number):
        with cuda.open_ipc_array(data, size, numpy.int32) as array:
            return change(array, number)

    said = []
    for i, handle in enumerate(handles):
        for action in (lambda: pickled(handle, i + 1), lambda: by_bytes(raw[i], SIZES[i], 10 * i + 1)):
            try:
                said.append(action())
            except Exception as error:
                said.append(f"{type(error).__name__}: {error}".splitlines()[0][:120])
    results.put(said)


def ipc():
    # Once much is held, the pool takes regions that are larger than these arrays, so that several share one.
    held = cuda.device_array(600 << 20, numpy.uint8)
    arrays = [cuda.to_device(numpy.arange(size, dtype=numpy.int32) * (i + 1)) for i, size in enumerate(SIZES)]
    cuda.synchronize()
    try:
        handles = [array.get_ipc_handle() for array in arrays]
        inner = [handle._ipc_handle.handle for handle in handles]
        raw = [bytes(getattr(handle, "reserved", handle)) for handle in inner]
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        child = context.Process(target=importer, args=(handles, raw, results), daemon=True)
        child.start()
        said = results.get(timeout=60)
        child.join(60)
    except Exception as error:  # not every release can do it in every place
        print(f"cannot share: {type(error).__name__}: {error}", flush=True)
        sys.exit(7)
    for i in range(len(SIZES)):
        attempt(f"pickled.{i}", lambda i=i: said[2 * i])
        attempt(f"bytes.{i}", lambda i=i: said[2 * i + 1])
    attempt("status", lambda: child.exitcode)
    attempt("written", lambda: digest(*[array.copy_to_host() for array in arrays]))
    del held


def close():
    arrays = [numpy.arange(size) for size in SIZES[:5]]
    attempt("before", lambda: hand_over(new_kernel(), cuda.stream(), cuda.stream(), 30))
    for round_number in range(3):
        held = []
        attempt(f"hold.{round_number}", lambda held=held: held.extend(map(cuda.to_device, arrays)))
        attempt(f"held.{round_number}", lambda held=held: digest(*[array.copy_to_host() for array in held]))
        attempt(f"close.{round_number}", cuda.close)
        del held
        attempt(f"after.{round_number}", lambda: hand_over(new_kernel(), cuda.stream(), cuda.stream(), 30))


def reset():
    arrays = [numpy.arange(size) for size in SIZES[:5]]
    attempt("before", lambda: hand_over(new_kernel(), cuda.stream(), cuda.stream(), 30))
    for round_number in range(3):
        held = []
        attempt(f"hold.{round_number}", lambda held=held: held.extend(map(cuda.to_device, arrays)))
        attempt(f"reset.{round_number}", lambda: cuda.current_context().reset())
        del held
        attempt(f"after.{round_number}", lambda: hand_over(new_kernel(), cuda.stream(), cuda.stream(), 30))


if __name__ == "__main__":
    {"streams": streams, "ipc": ipc, "close": close, "reset": reset}[sys.argv[1]]()
