// The promise that cudaFree makes, put to the test: threads allocate, write on a random stream (their own non-blocking
// ones, the legacy default, the per-thread default), check late on the same stream, and free without waiting. A block
// that is handed out again while its last user still runs shows as wrong words.
//
// race [THREADS [ITERATIONS [STREAMS]]], STREAMS being each thread's own; prints `pairs`, `reused` (of these, how many
// got an address that had been handed out before), `failures`, `wrong`, `us` (per iteration of one thread). Status 0
// whatever the count of wrong words: the caller knows whether they are expected.
#include "late.cuh"

#include <thread>

static std::atomic<long> pairs{0}, reused{0}, failures{0};

static void work(int thread, int iterations, int streams, Seen &seen, unsigned long long *wrong)
{
    static const int sizes[] = {4096, 64 << 10, 1 << 20};
    Random random{thread * 7919u + 1};
    std::vector<cudaStream_t> own(streams);
    for (auto &stream : own) {
        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    for (int i = 0; i < iterations; i++) {
        const int count = sizes[random.below(3)] / 4;
        unsigned *words = nullptr;
        if (cudaMalloc(&words, count * 4) != cudaSuccess) {
            cudaGetLastError();
            failures++;
            continue;
        }
        reused += seen.before(words);
        const unsigned choice = random.below(8);
        cudaStream_t stream = choice == 0   ? cudaStreamLegacy
                              : choice == 1 ? cudaStreamPerThread
                                            : own[random.below(streams)];
        const unsigned seed = random.state;
        fill<<<4, 128, 0, stream>>>(words, count, seed);
        check_late<<<4, 128, 0, stream>>>(words, count, seed, random.below(16) ? 2'000 : 200'000, wrong);
        if (random.below(64) == 0) {
            MUST(cudaMemsetAsync(words, 1, 64, stream));
        }
        MUST(cudaFree(words));
        pairs++;
        if (i % 4096 == 4095) {
            MUST(cudaStreamSynchronize(stream));
        }
    }
    MUST(cudaDeviceSynchronize());
    for (auto &stream : own) {
        MUST(cudaStreamDestroy(stream));
    }
}

static int number(int argc, char **argv, int at, int otherwise)
{
    return argc > at ? std::atoi(argv[at]) : otherwise;
}

int main(int argc, char **argv)
{
    const int threads = number(argc, argv, 1, 8), iterations = number(argc, argv, 2, 4000);
    const int streams = number(argc, argv, 3, 3);
    if (threads < 1 || iterations < 1 || streams < 1) {
        std::fprintf(stderr, "usage: race [THREADS [ITERATIONS [STREAMS]]]\n");
        return 2;
    }
    unsigned long long *wrong = nullptr, count = 0;
    MUST(cudaMalloc(&wrong, 8));
    MUST(cudaMemset(wrong, 0, 8));
    MUST(cudaDeviceSynchronize());
    Seen seen;
    auto start = Clock::now();
    std::vector<std::thread> all;
    for (int thread = 0; thread < threads; thread++) {
        all.emplace_back(work, thread, iterations, streams, std::ref(seen), wrong);
    }
    for (auto &one : all) {
        one.join();
    }
    MUST(cudaDeviceSynchronize());
    const double seconds = seconds_since(start);
    MUST(cudaMemcpy(&count, wrong, 8, cudaMemcpyDeviceToHost));
    std::printf("pairs %ld\nreused %ld\nfailures %ld\nwrong %llu\nus %.2f\n", pairs.load(), reused.load(),
                failures.load(), count, seconds * 1e6 / iterations);
    return 0;
}
