// The promise that cudaFree makes, on two devices: threads allocate on one, let the other read and write the block (by
// peer copies, or by kernels over peer access), and free it while that is under way. Whoever gets a block too early
// finds, or leaves, wrong words.
//
// peers copies|kernels ITERATIONS; prints `devices`, `peer` (1: peer access in both directions), and unless one of the
// two is too few, `pairs`, `failures`, `wrong`, `us` (per iteration of one thread). Status 0 whatever the count of
// wrong words: the caller knows whether they are expected.
#include "late.cuh"

#include <cstring>
#include <thread>

static const int THREADS = 8;
static const int SIZES[] = {4096, 64 << 10, 1 << 20};
static std::atomic<long> pairs{0}, failures{0};

static void work(int thread, int iterations, bool kernels, unsigned long long *const *wrong)
{
    const int home = thread % 2, away = 1 - home;
    Random random{thread * 7919u + 1};
    cudaStream_t streams[2];
    for (int device = 0; device < 2; device++) {
        MUST(cudaSetDevice(device));
        MUST(cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking));
    }
    MUST(cudaSetDevice(away));
    unsigned *landing = nullptr;
    MUST(cudaMalloc(&landing, SIZES[2]));
    MUST(cudaSetDevice(home));
    cudaEvent_t filled;
    MUST(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming));
    for (int i = 0; i < iterations; i++) {
        const int bytes = SIZES[random.below(3)], count = bytes / 4;
        MUST(cudaSetDevice(home));
        unsigned *words = nullptr;
        if (cudaMalloc(&words, bytes) != cudaSuccess) {
            cudaGetLastError();
            failures++;
            continue;
        }
        const unsigned seed = random.state;
        const long long cycles = random.below(16) ? 2'000 : 200'000;
        fill<<<4, 128, 0, streams[home]>>>(words, count, seed);
        MUST(cudaEventRecord(filled, streams[home]));
        MUST(cudaSetDevice(away));
        MUST(cudaStreamWaitEvent(streams[away], filled, 0));
        // The block's last use is the other device's, a write in one case of four.
        const bool write = random.below(4) == 0;
        if (kernels) {
            check_late<<<4, 128, 0, streams[away]>>>(words, count, seed, cycles, wrong[away]);
            if (write) {
                fill<<<4, 128, 0, streams[away]>>>(words, count, ~seed);
            }
        } else {
            busy_then_fill<<<1, 1, 0, streams[away]>>>(nullptr, 0, 0, cycles);
            MUST(cudaMemcpyPeerAsync(landing, away, words, home, bytes, streams[away]));
            check_late<<<4, 128, 0, streams[away]>>>(landing, count, seed, 0, wrong[away]);
            if (write) {
                fill<<<4, 128, 0, streams[away]>>>(landing, count, ~seed);
                MUST(cudaMemcpyPeerAsync(words, home, landing, away, bytes, streams[away]));
            }
        }
        if (random.below(2)) {
            MUST(cudaSetDevice(home));
        }
        MUST(cudaFree(words));
        pairs++;
        if (i % 512 == 511) {
            MUST(cudaStreamSynchronize(streams[away]));
        }
    }
    for (int device = 0; device < 2; device++) {
        MUST(cudaSetDevice(device));
        MUST(cudaDeviceSynchronize());
        MUST(cudaStreamDestroy(streams[device]));
    }
    MUST(cudaFree(landing));
}

int main(int argc, char **argv)
{
    const bool kernels = argc > 1 && !std::strcmp(argv[1], "kernels");
    const int iterations = argc > 2 ? std::atoi(argv[2]) : 500;
    int devices = 0, access[2] = {0, 0};
    MUST(cudaGetDeviceCount(&devices));
    if (devices >= 2) {
        MUST(cudaDeviceCanAccessPeer(&access[0], 0, 1));
        MUST(cudaDeviceCanAccessPeer(&access[1], 1, 0));
    }
    const bool peer = access[0] && access[1];
    std::printf("devices %d\npeer %d\n", devices, peer);
    if (devices < 2 || (kernels && !peer)) {
        return 0;
    }
    unsigned long long *wrong[2], count = 0;
    for (int device = 0; device < 2; device++) {
        MUST(cudaSetDevice(device));
        if (kernels) {
            MUST(cudaDeviceEnablePeerAccess(1 - device, 0));
        }
        MUST(cudaMalloc(&wrong[device], 8));
        MUST(cudaMemset(wrong[device], 0, 8));
        MUST(cudaDeviceSynchronize());
    }
    auto start = Clock::now();
    std::vector<std::thread> all;
    for (int thread = 0; thread < THREADS; thread++) {
        all.emplace_back(work, thread, iterations, kernels, wrong);
    }
    for (auto &one : all) {
        one.join();
    }
    const double seconds = seconds_since(start);
    for (int device = 0; device < 2; device++) {
        unsigned long long found = 0;
        MUST(cudaSetDevice(device));
        MUST(cudaMemcpy(&found, wrong[device], 8, cudaMemcpyDeviceToHost));
        count += found;
    }
    std::printf("pairs %ld\nfailures %ld\nwrong %llu\nus %.2f\n", pairs.load(), failures.load(), count,
                seconds * 1e6 / iterations);
    return 0;
}
