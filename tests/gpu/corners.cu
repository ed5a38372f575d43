// Corners of the driver that its documentation leaves open or that the library builds on. Facts are what the driver answers;
// RESULT lines must be the same with the library.
//
//   corners thread     a thread ends with a capture open on its default stream
//   corners retained   a primary context that is retained and never made current
//   corners green      whose memory a green context uses, and what a primary context's events cover
#include "check.cuh"

#include <cstring>
#include <thread>

static const size_t BLOCK = 4 << 20;
static const int ROUNDS = 2000;

static CUstream new_stream()
{
    CUstream stream = nullptr;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

// Allocations that are freed while the device still works on them: without reuse they need 8 GiB.
static void churn(const char *name, CUstream stream)
{
    int failed = 0;
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr p = 0;
        failed += cuMemAlloc(&p, BLOCK) != 0;
        failed += cuMemsetD8Async(p, 1, BLOCK, stream) != 0;
        failed += cuMemFree(p) != 0;
    }
    failed += cuStreamSynchronize(stream) != 0;
    std::printf("RESULT %s failed %d\n", name, failed);
}

#if CUDA_VERSION >= 12050

static CUevent new_event()
{
    CUevent event = nullptr;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

// Keeps a stream busy for some tens of milliseconds.
static void occupy(CUstream stream, CUdeviceptr scratch, size_t bytes)
{
    for (int i = 0; i < 100; i++) {
        MUST(cuMemsetD8Async(scratch, static_cast<unsigned char>(i), bytes, stream));
    }
}

static void thread_ends(CUcontext context)
{
    CUstream stream = new_stream();
    CUevent event = new_event();
    CUdeviceptr p = 0;
    MUST(cuMemAlloc(&p, BLOCK));
    std::thread([&] {
        MUST(cuCtxSetCurrent(context));
        MUST(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
        MUST(cuMemsetD8Async(p, 1, BLOCK, CU_STREAM_PER_THREAD));
    }).join();
    // In this order: what one call breaks is what the next one finds.
    const int first = cuCtxRecordEvent(context, event), second = cuCtxRecordEvent(context, event);
    const int wait = cuCtxWaitEvent(context, event), sync = cuCtxSynchronize();
    std::printf("fact thread: record gives %d, again %d, wait %d, synchronise %d\n", first, second, wait, sync);
    CUgraph graph = nullptr;
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(cuMemsetD8Async(p, 2, BLOCK, stream));
    std::printf("RESULT thread: another capture ends with %d\n", cuStreamEndCapture(stream, &graph));
    MUST(cuGraphDestroy(graph));
    int again = 0;
    std::thread([&] {
        MUST(cuCtxSetCurrent(context));
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        again = cuStreamIsCapturing(CU_STREAM_PER_THREAD, &status) * 10 + status;
    }).join();
    std::printf("RESULT thread: the next thread's stream tells %d\n", again);
    MUST(cuMemFree(p));
    churn("thread", stream);
    std::printf("fact thread: after that, record gives %d\n", static_cast<int>(cuCtxRecordEvent(context, event)));
}

static void retained(CUdevice device)
{
    CUcontext primary = nullptr, own = nullptr;
    MUST(cuDevicePrimaryCtxRetain(&primary, device));
#if CUDA_VERSION >= 13000
    MUST(cuCtxCreate(&own, nullptr, 0, device));
#else
    MUST(cuCtxCreate(&own, 0, device));
#endif
    CUstream stream = new_stream();
    CUevent ours = new_event();
    MUST(cuCtxRecordEvent(own, ours));
    std::printf("fact retained: wait in a context that was never current gives %d\n",
                static_cast<int>(cuCtxWaitEvent(primary, ours)));
    churn("retained", stream);
    MUST(cuCtxPushCurrent(primary));
    CUevent theirs = new_event();
    MUST(cuCtxPopCurrent(&primary));
    const int record = cuCtxRecordEvent(primary, theirs), wait = cuCtxWaitEvent(own, theirs);
    std::printf("fact retained: record there gives %d, wait for it here %d\n", record, wait);
    MUST(cuCtxDestroy(own));
    MUST(cuDevicePrimaryCtxRelease(device));
}

static void green(CUdevice device, CUcontext primary)
{
    CUdevResource resource;
    CUdevResourceDesc description = nullptr;
    CUgreenCtx handle = nullptr;
    CUcontext shown = nullptr;
    MUST(cuDeviceGetDevResource(device, &resource, CU_DEV_RESOURCE_TYPE_SM));
    MUST(cuDevResourceGenerateDesc(&description, &resource, 1));
    MUST(cuGreenCtxCreate(&handle, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
    MUST(cuCtxFromGreenCtx(&shown, handle));
    std::printf("RESULT green: its handle is another: %d\n", shown != primary);
    const size_t large = size_t{1} << 30;
    CUstream stream = new_stream();
    CUevent event = new_event();
    CUdeviceptr scratch = 0, kept = 0, inner = 0;
    MUST(cuMemAlloc(&scratch, large));
    MUST(cuCtxSetCurrent(shown));
    MUST(cuMemAlloc(&kept, 64 << 10));
    MUST(cuMemAlloc(&inner, 64 << 10));
    MUST(cuMemsetD8(inner, 7, 64 << 10));
    CUstream theirs = new_stream();
    MUST(cuCtxSynchronize());
    // What is recorded in the primary context covers the green one.
    occupy(theirs, scratch, large);
    MUST(cuCtxRecordEvent(primary, event));
    const int covers = cuEventQuery(event);
    MUST(cuStreamSynchronize(theirs));
    std::printf("RESULT green: primary's event while the green stream is busy %d, then %d\n", covers,
                static_cast<int>(cuEventQuery(event)));
    // And what the primary context waits for, the green one waits for.
    MUST(cuCtxSetCurrent(primary));
    occupy(stream, scratch, large);
    MUST(cuCtxRecordEvent(primary, event));
    MUST(cuCtxWaitEvent(primary, event));
    MUST(cuCtxSetCurrent(shown));
    MUST(cuMemsetD8Async(kept, 3, 64 << 10, theirs));
    const int waits = cuStreamQuery(theirs);
    std::printf("RESULT green: its stream behind the primary's wait %d\n", waits);
    MUST(cuStreamSynchronize(theirs));
    // A capture in the green context is in the way of the primary one's events.
    CUgraph graph = nullptr;
    MUST(cuStreamBeginCapture(theirs, CU_STREAM_CAPTURE_MODE_RELAXED));
    const int record = cuCtxRecordEvent(primary, event), end = cuStreamEndCapture(theirs, &graph);
    std::printf("RESULT green: record beside its capture %d, the capture ends with %d\n", record, end);
    churn("green", theirs);
    MUST(cuStreamDestroy(theirs));
    // Memory that was allocated in it, after its end.
    MUST(cuCtxSetCurrent(primary));
    MUST(cuGreenCtxDestroy(handle));
    unsigned char bytes[64] = {0};
    const int copied = cuMemcpyDtoH(bytes, inner, sizeof bytes);
    const int one = cuMemFree(kept), other = cuMemFree(inner), again = cuMemFree(inner);
    std::printf("RESULT green: after its end, copy %d, byte %d, free %d %d, again %d\n", copied, bytes[63], one, other,
                again);
    churn("primary", stream);
    MUST(cuMemFree(scratch));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "thread";
    CUdevice device = 0;
    int version = 0;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDriverGetVersion(&version));
    if (version < 12050) {
        std::printf("RESULT old driver\n");
        return 0;
    }
    if (std::strcmp(what, "retained") == 0) {
        retained(device);
        return 0;
    }
    CUcontext primary = nullptr;
    MUST(cuDevicePrimaryCtxRetain(&primary, device));
    MUST(cuCtxSetCurrent(primary));
    if (std::strcmp(what, "green") == 0) {
        green(device, primary);
    } else {
        thread_ends(primary);
    }
    return 0;
}

#else

int main()
{
    std::printf("RESULT old toolkit\n");
    return 0;
}

#endif
