// What calls answer, in the corners: run without and with the library, the printed lines must be the same. Lines that
// begin with `fact` are for the reader and are not compared (they hold times, or what the driver alone decides).
//
// semantics errors | ranges | reset | two
#include "check.cuh"

#include <cstdint>
#include <cstring>

static void say(const char *what, int code)
{
    const int peek = cudaPeekAtLastError(), last = cudaGetLastError();
    std::printf("%s: %d, last error %d then %d, left %d\n", what, code, peek, last, (int)cudaGetLastError());
}

static void errors()
{
    MUST(cudaFree(nullptr));
    void *const untouched = reinterpret_cast<void *>(0x1234);
    void *block = untouched;
    CUdeviceptr address = 0x1234;
    say("cudaMalloc of nothing", cudaMalloc(&block, 0));
    std::printf("pointer is null: %d\n", block == nullptr);
    say("cudaMalloc without a pointer", cudaMalloc((void **)nullptr, 16));
    block = untouched;
    say("cudaMalloc too large", cudaMalloc(&block, size_t{1} << 60));
    std::printf("fact pointer untouched: %d\n", block == untouched);
    say("cudaMalloc of all ones", cudaMalloc(&block, ~size_t{0}));
    say("cuMemAlloc of nothing", cuMemAlloc(&address, 0));
    say("cuMemAlloc without a pointer", cuMemAlloc(nullptr, 16));
    say("cuMemAlloc too large", cuMemAlloc(&address, size_t{1} << 60));
    std::printf("fact address untouched: %d\n", address == 0x1234);
    say("cudaFree of null", cudaFree(nullptr));
    say("cuMemFree of 0", cuMemFree(0));
    say("cudaFree of nonsense", cudaFree(untouched));
    int local = 0;
    say("cudaFree of host memory", cudaFree(&local));
    for (size_t size : {size_t{512}, size_t{1} << 20, size_t{64} << 20}) {
        MUST(cudaMalloc(&block, size));
        const unsigned written = 0xfeed;
        unsigned read = 0;
        MUST(cudaMemcpy(block, &written, 4, cudaMemcpyHostToDevice));
        say("cudaFree inside a block", cudaFree(static_cast<char *>(block) + 256));
        say("cuMemFree inside a block", cuMemFree((CUdeviceptr)block + 4));
        MUST(cudaMemcpy(&read, block, 4, cudaMemcpyDeviceToHost));
        std::printf("still there: %d\n", read == written);
        say("cudaFree", cudaFree(block));
        say("cudaFree again", cudaFree(block));
        say("cuMemFree again", cuMemFree((CUdeviceptr)block));
    }
    size_t free_bytes = 0, total = 0;
    say("cudaMemGetInfo without free", cudaMemGetInfo(nullptr, &total));
    say("cudaMemGetInfo without total", cudaMemGetInfo(&free_bytes, nullptr));
    say("cuMemGetInfo", cuMemGetInfo(&free_bytes, &total));
    std::printf("free is at most total: %d\n", free_bytes <= total && free_bytes > 0);
}

static void range_of(CUdeviceptr block, CUdeviceptr inside)
{
    CUdeviceptr base = 0, start = 0;
    size_t size = 0, range = 0;
    unsigned kind = 0;
    int ordinal = -1;
    bool managed = true;
    const int code = cuMemGetAddressRange(&base, &size, inside);
    std::printf("range: %d, starts at block: %d, %zu bytes\n", code, base == block, size);
    const int first = cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside);
    const int second = cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside);
    std::printf("attributes: %d %d, starts at block: %d, %zu bytes\n", first, second, start == block, range);
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void *values[] = {&start, &range, &kind, &ordinal, &managed};
    start = range = 0;
    const int all = cuPointerGetAttributes(5, names, values, inside);
    std::printf("all at once: %d, starts at block: %d, %zu bytes, kind %u, device %d, managed %d\n", all,
                start == block, range, kind, ordinal, managed);
    cudaPointerAttributes runtime{};
    const int third = cudaPointerGetAttributes(&runtime, reinterpret_cast<void *>(inside));
    std::printf("runtime: %d, type %d, device %d\n", third, runtime.type, runtime.device);
}

static void ranges()
{
    MUST(cudaFree(nullptr));
    const size_t sizes[] = {512, 1000, 64 << 10, 1 << 20, 5 << 20, size_t{40} << 20};
    CUdeviceptr blocks[6];
    unsigned long long ids[6];
    for (int i = 0; i < 6; i++) {
        MUST(cuMemAlloc(&blocks[i], sizes[i]));
    }
    for (int i = 0; i < 6; i++) {
        std::printf("block of %zu\n", sizes[i]);
        range_of(blocks[i], blocks[i]);
        range_of(blocks[i], blocks[i] + sizes[i] / 2);
        MUST(cuPointerGetAttribute(&ids[i], CU_POINTER_ATTRIBUTE_BUFFER_ID, blocks[i]));
    }
    int same = 0;
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < i; j++) {
            same += ids[i] == ids[j];
        }
    }
    std::printf("blocks that share a buffer id: %d\n", same);
    MUST(cuMemFree(blocks[2]));
    CUdeviceptr base = 0;
    size_t size = 0;
    std::printf("fact range of a freed block: %d\n", cuMemGetAddressRange(&base, &size, blocks[2]));
    MUST(cuMemAlloc(&blocks[2], sizes[2]));
    unsigned long long id = 0;
    MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, blocks[2]));
    std::printf("buffer id is new after a free: %d\n", id != ids[2]);
}

static bool holds(void *block, size_t bytes, unsigned value)
{
    unsigned ends[2] = {0, 0};
    busy_then_fill<<<64, 256>>>(static_cast<unsigned *>(block), static_cast<int>(bytes / 4), value, 0);
    MUST(cudaMemcpy(&ends[0], block, 4, cudaMemcpyDeviceToHost));
    MUST(cudaMemcpy(&ends[1], static_cast<char *>(block) + bytes - 4, 4, cudaMemcpyDeviceToHost));
    return ends[0] == value && ends[1] == value;
}

static void reset()
{
    const size_t size = 5 << 20;
    for (int round = 0; round < 3; round++) {
        void *old[4], *fresh[4], *freed = nullptr;
        for (auto &block : old) {
            MUST(cudaMalloc(&block, size));
            std::printf("before: %d\n", holds(block, size, 1));
        }
        MUST(cudaMalloc(&freed, size)); // one that the pool holds free at the reset
        MUST(cudaFree(freed));
        say("cudaDeviceReset", cudaDeviceReset());
        MUST(cudaFree(nullptr));
        for (auto block : old) {
            say("cudaFree of a block from before", cudaFree(block));
        }
        for (auto &block : fresh) {
            MUST(cudaMalloc(&block, size));
            std::printf("after: %d\n", holds(block, size, 2));
        }
        for (auto block : fresh) {
            say("cudaFree of a block from after", cudaFree(block));
        }
    }
    say("at the end", cudaDeviceSynchronize());
}

static CUcontext new_context(CUdevice device)
{
    CUcontext context = nullptr;
#if CUDA_VERSION >= 13000
    MUST(cuCtxCreate(&context, nullptr, 0, device));
#else
    MUST(cuCtxCreate(&context, 0, device));
#endif
    return context;
}

// How long a kernel in `second` takes to come through behind one of `us` in `first`, joined by `join`.
template <typename Join> static double behind_ms(CUcontext first, CUcontext second, long long us, Join join)
{
    MUST(cuCtxSetCurrent(first));
    busy_then_fill<<<1, 1>>>(nullptr, 0, 0, us * cycles_per_us());
    auto start = Clock::now();
    join();
    MUST(cuCtxSetCurrent(second));
    busy_then_fill<<<1, 1>>>(nullptr, 0, 0, 0);
    MUST(cuCtxSynchronize());
    const double ms = seconds_since(start) * 1e3;
    MUST(cuCtxSetCurrent(first));
    MUST(cuCtxSynchronize());
    return ms;
}

// How two contexts of one device can be ordered, as this driver has it.
static void context_facts(CUcontext first, CUcontext second)
{
#if CUDA_VERSION >= 12050
    CUevent event = nullptr;
    MUST(cuCtxSetCurrent(first));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (CUcontext current : {first, second}) {
        MUST(cuCtxSetCurrent(current));
        const int recorded = cuCtxRecordEvent(first, event), queried = cuEventQuery(event);
        const int waited = cuCtxWaitEvent(second, event);
        const int own = cuCtxWaitEvent(first, event), foreign = cuCtxRecordEvent(second, event);
        std::printf("fact current %s: cuCtxRecordEvent(A, eA) %d, cuEventQuery %d, cuCtxWaitEvent(B, eA) %d, "
                    "cuCtxWaitEvent(A, eA) %d, cuCtxRecordEvent(B, eA) %d\n",
                    current == first ? "A" : "B", recorded, queried, waited, own, foreign);
    }
    int waited = -1, streamed = -1;
    const long long us = 100'000;
    for (int round = 0; round < 2; round++) {
        const double none = behind_ms(first, second, us, [] {});
        const double whole = behind_ms(first, second, us, [&] {
            MUST(cuCtxRecordEvent(first, event));
            waited = cuCtxWaitEvent(second, event);
        });
        const double stream = behind_ms(first, second, us, [&] {
            MUST(cuCtxRecordEvent(first, event));
            MUST(cuCtxSetCurrent(second));
            streamed = cuStreamWaitEvent(nullptr, event, 0);
        });
        std::printf("fact B behind 100 ms in A: unordered %.1f ms; cuCtxWaitEvent (%d) %.1f ms; cuStreamWaitEvent "
                    "(%d) %.1f ms\n", none, waited, whole, streamed, stream);
    }
    MUST(cuCtxSetCurrent(first));
    MUST(cuEventDestroy(event));
    int peer = -1;
    MUST(cuDeviceCanAccessPeer(&peer, 0, 0));
    std::printf("fact cuDeviceCanAccessPeer(0, 0): %d\n", peer);
#endif
}

static void two()
{
    CUdevice device = 0;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    CUcontext first = new_context(device), second = new_context(device), current = nullptr;
    const size_t size = 3 << 20;
    void *mine = nullptr, *other = nullptr, *again = nullptr;
    MUST(cuCtxSetCurrent(first));
    MUST(cudaMalloc(&mine, size));
    std::printf("first: %d\n", holds(mine, size, 1));
    MUST(cuCtxSetCurrent(second));
    MUST(cudaMalloc(&other, size));
    std::printf("second: %d\n", holds(other, size, 2));
    say("free of the first's block while the second is current", cudaFree(mine));
    MUST(cudaMalloc(&again, size));
    std::printf("second again: %d, not the second's other: %d\n", holds(again, size, 3), again != other);
    MUST(cuCtxGetCurrent(&current));
    std::printf("current is still the second: %d\n", current == second);
    MUST(cuCtxSetCurrent(first));
    MUST(cudaMalloc(&mine, size));
    std::printf("first again: %d\n", holds(mine, size, 4));
    // Alternating use: what one context frees must never be handed out while it is in use there.
    int wrong = 0;
    for (int i = 0; i < 200; i++) {
        MUST(cuCtxSetCurrent(i % 2 ? first : second));
        void *block = nullptr;
        MUST(cudaMalloc(&block, size));
        wrong += !holds(block, size, 10 + i);
        MUST(cudaFree(block));
    }
    std::printf("alternating, wrong: %d\n", wrong);
    context_facts(first, second);
    MUST(cuCtxSetCurrent(first));
    say("destroy the second", cuCtxDestroy(second));
    say("free of its block", cudaFree(other));
    std::printf("first after that: %d\n", holds(mine, size, 5));
    say("free", cudaFree(mine));
    CUcontext third = new_context(device);
    MUST(cuCtxSetCurrent(third));
    MUST(cudaMalloc(&again, size));
    std::printf("third: %d\n", holds(again, size, 6));
    say("destroy the third", cuCtxDestroy(third));
    say("destroy the first", cuCtxDestroy(first));
}

int main(int argc, char **argv)
{
    const char *section = argc > 1 ? argv[1] : "";
    if (!std::strcmp(section, "errors")) {
        errors();
    } else if (!std::strcmp(section, "ranges")) {
        ranges();
    } else if (!std::strcmp(section, "reset")) {
        reset();
    } else if (!std::strcmp(section, "two")) {
        two();
    } else {
        std::fprintf(stderr, "usage: semantics errors|ranges|reset|two\n");
        return 2;
    }
    return 0;
}
