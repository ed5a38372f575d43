// What allocating costs a program that keeps several streams busy: 4 streams × 200 kernels of 50 µs, first without any
// allocation, then with an allocation before and a free after each. Prints `none_ms` and `around_ms`; 10 ms is the
// ideal, 40 ms means that the streams' work no longer overlaps.
#include "check.cuh"

static const int STREAMS = 4, KERNELS = 200;

static double run_ms(cudaStream_t (&streams)[STREAMS], bool allocate, long long cycles)
{
    MUST(cudaDeviceSynchronize());
    auto start = Clock::now();
    for (int i = 0; i < KERNELS; i++) {
        for (auto stream : streams) {
            unsigned *words = nullptr;
            if (allocate) {
                MUST(cudaMalloc(&words, 1 << 20));
            }
            busy_then_fill<<<1, 32, 0, stream>>>(words, 32, 7, cycles);
            if (allocate) {
                MUST(cudaFree(words));
            }
        }
    }
    MUST(cudaDeviceSynchronize());
    return seconds_since(start) * 1e3;
}

int main()
{
    MUST(cudaFree(nullptr));
    cudaStream_t streams[STREAMS];
    for (auto &stream : streams) {
        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    const long long cycles = 50 * cycles_per_us();
    for (bool allocate : {false, true}) {
        double best = 1e30;
        for (int round = 0; round < 4; round++) {
            const double ms = run_ms(streams, allocate, cycles);
            best = round && ms < best ? ms : best; // the first loads the kernel and fills the pool
        }
        std::printf("%s %.2f\n", allocate ? "around_ms" : "none_ms", best);
    }
    return 0;
}
