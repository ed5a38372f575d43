"""What CuPy does with the driver beside allocating: `cupy_more.py PART` with PART among
  streams   work handed from stream to stream by events, temporaries freed while it runs, per-thread streams
  ipc       arrays opened by another process, which reads and writes them
  reset     the device's context reset with memory held, and going on after it
  contexts  contexts of the driver's made, used and destroyed with memory held
  memory    pinned, managed and stream-ordered memory, CUDA arrays, pools, a captured graph
Prints RESULT lines that must not depend on the allocator.
"""

import ctypes
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import cupy
import numpy
from cupy.cuda import driver, runtime

from outcome import attempt, digest

# Every array is an allocation of the driver's.
cupy.cuda.set_allocator(None)


def hand_over(first, second, rounds):
    """`first` makes numbers, `second` uses them after an event; both arrays go while the work is under way."""
    results = []
    for i in range(rounds):
        size = 1_000 + (i * 7919) % 300_000
        with first:
            numbers = cupy.arange(size, dtype=cupy.int64) * (i + 1)
            ready = first.record()
        second.wait_event(ready)
        with second:
            turned = numbers[::-1].copy()
            results.append((turned * 3 + numbers).sum())
        del numbers, turned
    first.synchronize()
    second.synchronize()
    return digest(*[cupy.asnumpy(result) for result in results])


def streams():
    def own():
        return hand_over(cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True), 200)

    def null():
        return hand_over(cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True), 50)

    def threads():
        def work(at):
            return hand_over(cupy.cuda.Stream.ptds, cupy.cuda.Stream(non_blocking=True), 40 + at)

        with ThreadPoolExecutor(4) as executor:
            return list(executor.map(work, range(4)))

    def events():
        stream, start, end = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Event(), cupy.cuda.Event()
        start.record(stream)
        with stream:
            total = cupy.ones(1 << 20).sum()
        end.record(stream)
        end.synchronize()
        took = cupy.cuda.get_elapsed_time(start, end)
        return end.done, stream.done, 0 <= took < 10_000, float(total)

    attempt("own", own)
    attempt("null", null)
    attempt("threads", threads)
    attempt("events", events)


SIZES = (512, 64 << 10, 1 << 20, 1 << 20, 3 << 20, 12 << 20, 4096, 2 << 20, 2560)


def whole(pointer, size):
    """An array over memory that somebody else owns."""
    memory = cupy.cuda.UnownedMemory(pointer, size, None)
    return cupy.ndarray((size // 4,), cupy.uint32, cupy.cuda.MemoryPointer(memory, 0))


def ipc():
    # Once much is held, the pool takes regions that are larger than these arrays, so that several share one.
    held = cupy.zeros(600 << 20, cupy.uint8)
    arrays = [cupy.full(size // 4, 0x1000001 * (i + 1), cupy.uint32) for i, size in enumerate(SIZES)]
    cupy.cuda.Device().synchronize()
    for round_number in range(2):
        handles = [runtime.ipcGetMemHandle(array.data.ptr).hex() for array in arrays]
        command = [sys.executable, __file__, "importer"]
        child = subprocess.run(command, input=json.dumps(handles), capture_output=True, text=True, timeout=60)
        print(child.stdout, end="")
        print(child.stderr, end="", file=sys.stderr)
        attempt(f"status.{round_number}", lambda child=child: child.returncode)
        attempt(f"written.{round_number}", lambda: digest(*[cupy.asnumpy(array) for array in arrays]))
        # Others take the place of every second one.
        for i in range(0, len(arrays), 2):
            arrays[i] = None
            arrays[i] = cupy.full(SIZES[i] // 4, 77 + i, cupy.uint32)
        cupy.cuda.Device().synchronize()
    del held


def importer():
    # Memory of its own among the other's.
    own = cupy.full(1 << 18, 3, cupy.uint32)
    pointers = [runtime.ipcOpenMemHandle(bytes.fromhex(text)) for text in json.load(sys.stdin)]
    for i, (pointer, size) in enumerate(zip(pointers, SIZES)):
        array = whole(pointer, size)
        attempt(f"import.{i}", lambda array=array: digest(cupy.asnumpy(array)))
        array[array.size // 2 :] += numpy.uint32(i + 5)
    attempt("own", lambda: digest(cupy.asnumpy(own)))
    for i, pointer in enumerate(pointers):
        attempt(f"close.{i}", lambda pointer=pointer: runtime.ipcCloseMemHandle(pointer))


def copies(rounds):
    """Bytes that go to the device, from block to block and back. Calls of the runtime only: what CuPy keeps for later
    (modules, pinned buffers, events) would be gone after a reset."""
    results = []
    for i in range(rounds):
        size = 4096 * (1 + (i * 37) % 500)
        host, back = (numpy.arange(size) + i).astype(numpy.uint8), numpy.empty(size, numpy.uint8)
        stream = runtime.streamCreateWithFlags(runtime.streamNonBlocking)
        one, two = runtime.malloc(size), runtime.malloc(size)
        runtime.memsetAsync(two, i, size, stream)
        runtime.memcpy(one, host.ctypes.data, size, runtime.memcpyHostToDevice)
        runtime.memcpyAsync(two, one, size // 2, runtime.memcpyDeviceToDevice, stream)
        runtime.streamSynchronize(stream)
        runtime.memcpy(back.ctypes.data, two, size, runtime.memcpyDeviceToHost)
        runtime.free(one)
        runtime.free(two)
        runtime.streamDestroy(stream)
        results.append(digest(back))
    return results[-1], len(set(results))


def device_reset():
    """cudaDeviceReset, or the driver's half of it where CuPy does not have the runtime's."""
    if hasattr(runtime, "deviceReset"):
        return runtime.deviceReset()
    return ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxReset_v2(0)


def reset():
    attempt("before", lambda: copies(40))
    for round_number in range(3):
        held = [runtime.malloc(size) for size in SIZES]
        runtime.memset(held[5], 1, SIZES[5])
        attempt(f"reset.{round_number}", device_reset)
        attempt(f"old.{round_number}", lambda held=held: runtime.free(held[2]))
        attempt(f"after.{round_number}", lambda: copies(40))
        attempt(f"error.{round_number}", lambda: runtime.deviceSynchronize())
    code = 'extern "C" __global__ void twice(int *x, int n) { int i = threadIdx.x; if (i < n) x[i] = 2 * i; }'

    def kernel():
        numbers = cupy.zeros(64, cupy.int32)
        cupy.RawKernel(code, "twice")((1,), (64,), (numbers, 64))
        return digest(numbers.get())

    attempt("kernel", kernel)


def contexts():
    attempt("before", lambda: copies(40))
    for round_number in range(4):
        outer = runtime.malloc(1 << 20)
        runtime.memset(outer, 3, 1 << 20)
        context = driver.ctxCreate(0)
        attempt(f"inside.{round_number}", lambda: copies(40))
        held = [runtime.malloc(size) for size in SIZES]
        runtime.memset(held[5], 1, SIZES[5])
        attempt(f"destroy.{round_number}", lambda context=context: driver.ctxDestroy(context))
        attempt(f"old.{round_number}", lambda held=held: runtime.free(held[2]))
        back = numpy.empty(1 << 20, numpy.uint8)
        runtime.memcpy(back.ctypes.data, outer, 1 << 20, runtime.memcpyDeviceToHost)
        attempt(f"outer.{round_number}", lambda back=back: digest(back))
        attempt(f"free.{round_number}", lambda outer=outer: runtime.free(outer))
        attempt(f"after.{round_number}", lambda: copies(40))


def memory():
    def pinned():
        size, stream = 1 << 20, cupy.cuda.Stream(non_blocking=True)
        there, back = [numpy.frombuffer(cupy.cuda.alloc_pinned_memory(size), numpy.uint8, size) for _ in range(2)]
        there[:] = numpy.arange(size).astype(numpy.uint8)
        for i in range(50):
            with stream:
                block = cupy.empty(size, cupy.uint8)
                block.set(there, stream)
                block += numpy.uint8(i)
                block.get(stream, out=back, blocking=False)
            del block
        stream.synchronize()
        return digest(back)

    def allocator(take):
        with cupy.cuda.using_allocator(take):
            results = []
            for i in range(60):
                numbers = cupy.arange(1_000 + i * 999, dtype=cupy.int64)
                results.append(cupy.asnumpy((numbers * i).cumsum()))
            return digest(*results)

    def pool():
        own = cupy.cuda.MemoryPool()
        value = allocator(own.malloc)
        used = own.used_bytes()
        own.free_all_blocks()
        return value, used, own.total_bytes()

    def arrays():
        texture = cupy.cuda.texture
        form = texture.ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindFloat)
        picture = cupy.arange(256 * 128, dtype=cupy.float32).reshape(128, 256)
        array, back = texture.CUDAarray(form, 256, 128), cupy.zeros_like(picture)
        array.copy_from(picture)
        array.copy_to(back)
        return digest(cupy.asnumpy(back))

    def graph():
        stream, numbers = cupy.cuda.Stream(non_blocking=True), cupy.zeros(1 << 16, cupy.int64)
        with stream:
            # Once outside, so that the kernels are loaded.
            numbers *= 3
            numbers += 1
            stream.begin_capture()
            numbers *= 3
            numbers += 1
            captured = stream.end_capture()
            for _ in range(5):
                captured.launch()
                cupy.zeros(1 << 16, cupy.int64)
        stream.synchronize()
        return digest(cupy.asnumpy(numbers))

    def sizes():
        free, total = runtime.memGetInfo()
        return 0 < free <= total

    attempt("pinned", pinned)
    attempt("managed", lambda: allocator(cupy.cuda.malloc_managed))
    attempt("managed-pool", lambda: allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc))
    attempt("async", lambda: allocator(cupy.cuda.malloc_async))
    attempt("async-pool", lambda: allocator(cupy.cuda.MemoryAsyncPool().malloc))
    attempt("pool", pool)
    attempt("arrays", arrays)
    attempt("graph", graph)
    attempt("sizes", sizes)


PARTS = (streams, ipc, importer, reset, contexts, memory)
{part.__name__: part for part in PARTS}[sys.argv[1]]()
