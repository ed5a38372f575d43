// What one allocation and its free cost: through the static runtime, through the driver API, and for comparison on the
// host. Two cases: nothing else allocated (the driver then takes and returns physical memory every time), and one small
// block held (which lets the driver serve small sizes from a chunk that it already has).
//
// Prints lines `API SIZE CASE NANOSECONDS`, the best of five batches, and `spread API SIZE CASE P50 P99 P99.9` of pairs timed one by
// one, the clock's own time in them.
#include "check.cuh"

#include <algorithm>
#include <functional>
#include <vector>

static double best_ns(const std::function<void()> &pair)
{
    for (int i = 0; i < 10; i++) {
        pair();
    }
    double best = 1e30;
    for (int batch = 0; batch < 5; batch++) {
        long done = 0;
        auto start = Clock::now();
        do {
            for (int i = 0; i < 50; i++) {
                pair();
            }
            done += 50;
        } while (seconds_since(start) < 0.04);
        best = std::min(best, seconds_since(start) / done * 1e9);
    }
    return best;
}

static void print_spread(const char *api, size_t size, const char *state, const std::function<void()> &pair)
{
    std::vector<double> times;
    for (auto start = Clock::now(); times.size() < 50000 && seconds_since(start) < 0.1;) {
        auto before = Clock::now();
        pair();
        times.push_back(seconds_since(before) * 1e9);
    }
    std::sort(times.begin(), times.end());
    auto at = [&](size_t thousandth) { return times[times.size() * thousandth / 1000]; };
    std::printf("spread %s %zu %s %.0f %.0f %.0f\n", api, size, state, at(500), at(990), at(999));
}

int main()
{
    MUST(cudaFree(nullptr));
    // A processor that has just been woken takes its time to reach its speed.
    for (auto start = Clock::now(); seconds_since(start) < 1;) {
    }
    void *held = nullptr;
    for (const char *state : {"alone", "held"}) {
        if (state[0] == 'h') {
            MUST(cudaMalloc(&held, 4096));
        }
        for (size_t size : {size_t{512}, size_t{64} << 10, size_t{1} << 20, size_t{16} << 20}) {
            auto by_runtime = [size] {
                void *block = nullptr;
                MUST(cudaMalloc(&block, size));
                MUST(cudaFree(block));
            };
            auto by_driver = [size] {
                CUdeviceptr block = 0;
                MUST(cuMemAlloc(&block, size));
                MUST(cuMemFree(block));
            };
            double runtime = best_ns(by_runtime);
            double driver = best_ns(by_driver);
            double host = best_ns([size] {
                void *volatile block = std::malloc(size);
                std::free(block);
            });
            std::printf("cudaMalloc %zu %s %.1f\n", size, state, runtime);
            std::printf("cuMemAlloc %zu %s %.1f\n", size, state, driver);
            std::printf("malloc %zu %s %.1f\n", size, state, host);
            print_spread("cudaMalloc", size, state, by_runtime);
            print_spread("cuMemAlloc", size, state, by_driver);
        }
    }
    return 0;
}
