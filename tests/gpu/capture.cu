// Allocations and frees while a stream captures, in all three modes, on the capturing thread and on another. One line a
// case: `MODE THREAD ACTION: survives 0|1, codes …`. A capture that survives without the library must survive with it,
// and replay the right values.
#include "check.cuh"

#include <functional>
#include <thread>

static const size_t SIZE = 3 << 20;

struct Case {
    const char *name;
    // Returns the code of the last call, and the block that it leaves allocated, if any.
    std::function<int(void *&)> act;
};

static bool survives(cudaStreamCaptureMode mode, bool elsewhere, const Case &what, int &code, int &end, bool &right)
{
    unsigned *words = nullptr, value = 0;
    void *left = nullptr;
    cudaStream_t stream;
    cudaGraph_t graph = nullptr;
    MUST(cudaMalloc(&words, 4096));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaDeviceSynchronize());
    MUST(cudaStreamBeginCapture(stream, mode));
    busy_then_fill<<<1, 32, 0, stream>>>(words, 1024, 41, 0);
    if (elsewhere) {
        std::thread([&] { code = what.act(left); }).join();
    } else {
        code = what.act(left);
    }
    cudaGetLastError();
    busy_then_fill<<<1, 32, 0, stream>>>(words, 1024, 42, 0);
    cudaGetLastError();
    end = cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();
    right = false;
    if (end == 0) {
        cudaGraphExec_t replay;
        MUST(cudaGraphInstantiate(&replay, graph, 0));
        for (int i = 0; i < 3; i++) {
            MUST(cudaGraphLaunch(replay, stream));
        }
        MUST(cudaStreamSynchronize(stream));
        MUST(cudaMemcpy(&value, words, 4, cudaMemcpyDeviceToHost));
        right = value == 42;
        MUST(cudaGraphExecDestroy(replay));
        MUST(cudaGraphDestroy(graph));
    }
    if (left) {
        MUST(cudaFree(left));
    }
    MUST(cudaStreamDestroy(stream));
    MUST(cudaFree(words));
    return end == 0;
}

int main()
{
    MUST(cudaFree(nullptr));
    void *before = nullptr;
    MUST(cudaMalloc(&before, SIZE)); // for the pool to hold, once freed
    MUST(cudaFree(before));
    MUST(cudaDeviceSynchronize());
    size_t unseen = size_t{70} << 20;
    void *early = nullptr;
    const Case cases[] = {
        {"nothing", [](void *&) { return 0; }},
        {"allocation and free", [](void *&) {
             void *block = nullptr;
             const int code = cudaMalloc(&block, SIZE);
             return code ? code : (int)cudaFree(block);
         }},
        {"allocation kept", [](void *&left) { return (int)cudaMalloc(&left, SIZE); }},
        {"allocation of a new size", [&](void *&left) { return (int)cudaMalloc(&left, unseen += 8 << 20); }},
        {"free of an earlier block", [&](void *&) { return (int)cudaFree(early); }},
        {"100 allocations and frees, relaxed", [](void *&) {
             CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
             MUST(cuThreadExchangeStreamCaptureMode(&mode));
             int code = 0;
             for (int i = 0; i < 100 && !code; i++) {
                 void *block = nullptr;
                 code = cudaMalloc(&block, SIZE + i % 7 * 4096);
                 code = code ? code : (int)cudaFree(block);
             }
             MUST(cuThreadExchangeStreamCaptureMode(&mode));
             return code;
         }},
        {"memory info", [](void *&) {
             size_t free_bytes = 0, total = 0;
             return (int)cudaMemGetInfo(&free_bytes, &total);
         }},
        {"synchronise the device", [](void *&) { return (int)cudaDeviceSynchronize(); }},
    };
    const char *modes[] = {"global", "thread-local", "relaxed"};
    for (int mode = 0; mode < 3; mode++) {
        for (bool elsewhere : {false, true}) {
            for (const auto &what : cases) {
                MUST(cudaMalloc(&early, SIZE));
                void *held = early;
                int code = -1, end = -1;
                bool right = false;
                const bool alive = survives(static_cast<cudaStreamCaptureMode>(mode), elsewhere, what, code, end, right);
                std::printf("%s %s %s: survives %d, call %d, end %d, replays right %d\n", modes[mode],
                            elsewhere ? "other-thread" : "same-thread", what.name, alive, code, end, right);
                cudaFree(held); // freed already in one of the cases
                cudaGetLastError();
            }
        }
    }
    return 0;
}
