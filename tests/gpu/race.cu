// The promise that cudaFree makes, put to the test: threads allocate, write on a random stream (their own non-blocking
// ones, the legacy default, the per-thread default), check late on the same stream, and free without waiting. A block
// that is handed out again while its last user still runs shows as wrong words.
//
// race THREADS ITERATIONS; prints `pairs`, `failures`, `wrong`, `us` (per iteration of one thread). Status 0 whatever
// the count of wrong words: the caller knows whether they are expected.
#include "check.cuh"

#include <atomic>
#include <thread>
#include <vector>

__global__ void fill(unsigned *words, int count, unsigned seed)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        words[i] = seed + i;
    }
}

// Waits first, so that whoever else was given the memory has time to write to it.
__global__ void check_late(const unsigned *words, int count, unsigned seed, long long cycles,
                           unsigned long long *wrong)
{
    busy(cycles);
    unsigned long long found = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        found += words[i] != seed + i;
    }
    if (found) {
        atomicAdd(wrong, found);
    }
}

struct Random {
    unsigned state;
    unsigned below(unsigned bound)
    {
        state = state * 1664525u + 1013904223u;
        return static_cast<unsigned>((static_cast<unsigned long long>(state) * bound) >> 32);
    }
};

static std::atomic<long> pairs{0}, failures{0};

static void work(int thread, int iterations, unsigned long long *wrong)
{
    static const int sizes[] = {4096, 64 << 10, 1 << 20};
    Random random{thread * 7919u + 1};
    cudaStream_t own[3];
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
        const unsigned choice = random.below(8);
        cudaStream_t stream = choice == 0 ? cudaStreamLegacy : choice == 1 ? cudaStreamPerThread : own[choice % 3];
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

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? std::atoi(argv[1]) : 8, iterations = argc > 2 ? std::atoi(argv[2]) : 4000;
    unsigned long long *wrong = nullptr, count = 0;
    MUST(cudaMalloc(&wrong, 8));
    MUST(cudaMemset(wrong, 0, 8));
    MUST(cudaDeviceSynchronize());
    auto start = Clock::now();
    std::vector<std::thread> all;
    for (int thread = 0; thread < threads; thread++) {
        all.emplace_back(work, thread, iterations, wrong);
    }
    for (auto &one : all) {
        one.join();
    }
    MUST(cudaDeviceSynchronize());
    const double seconds = seconds_since(start);
    MUST(cudaMemcpy(&count, wrong, 8, cudaMemcpyDeviceToHost));
    std::printf("pairs %ld\nfailures %ld\nwrong %llu\nus %.2f\n", pairs.load(), failures.load(), count,
                seconds * 1e6 / iterations);
    return 0;
}
