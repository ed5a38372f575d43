// Threads that end with work behind them: in every round 64 threads start, each allocates blocks of several sizes,
// writes and checks them late on a stream of its own, frees half of them and ends; the main thread frees the other
// half. What a thread leaves in a cache of its own must serve those of the next round: all rounds hold the same, so the
// most that is held at once must not grow with their number.
//
// threads_end ROUNDS; prints `held` (bytes at the fullest), `failures`, `wrong`, `ms` (per round).
#include "late.cuh"

#include <thread>

static const int THREADS = 64;

struct Kind {
    int blocks;
    int bytes;
};
static const Kind KINDS[] = {{64, 4 << 10}, {16, 64 << 10}, {1, 1 << 20}};

static std::atomic<long> failures{0};

static void work(int thread, int round, std::atomic<int> &ready, std::vector<void *> &left,
                 unsigned long long *wrong)
{
    cudaStream_t stream;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    struct Block {
        unsigned *words;
        int count;
        unsigned seed;
    };
    std::vector<Block> blocks;
    for (const auto &kind : KINDS) {
        for (int i = 0; i < kind.blocks; i++) {
            Block block{nullptr, kind.bytes / 4, (round * THREADS + thread) * 977u + i * 31u + kind.bytes};
            if (cudaMalloc(&block.words, kind.bytes) != cudaSuccess) {
                cudaGetLastError();
                failures++;
                continue;
            }
            fill<<<2, 128, 0, stream>>>(block.words, block.count, block.seed);
            blocks.push_back(block);
        }
    }
    // All threads hold all of theirs at once, so that every round needs the same.
    for (ready++; ready < THREADS;) {
        std::this_thread::yield();
    }
    bool mine = false;
    for (const auto &block : blocks) {
        check_late<<<2, 128, 0, stream>>>(block.words, block.count, block.seed, 2'000, wrong);
        mine = !mine;
        if (mine) {
            MUST(cudaFree(block.words));
        } else {
            left.push_back(block.words);
        }
    }
    MUST(cudaStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 3;
    unsigned long long *wrong = nullptr, count = 0;
    MUST(cudaMalloc(&wrong, 8));
    MUST(cudaMemset(wrong, 0, 8));
    MUST(cudaDeviceSynchronize());
    auto start = Clock::now();
    for (int round = 0; round < rounds; round++) {
        std::atomic<int> ready{0};
        std::vector<std::vector<void *>> left(THREADS);
        std::vector<std::thread> all;
        for (int thread = 0; thread < THREADS; thread++) {
            all.emplace_back(work, thread, round, std::ref(ready), std::ref(left[thread]), wrong);
        }
        for (auto &one : all) {
            one.join();
        }
        for (const auto &blocks : left) {
            for (auto block : blocks) {
                MUST(cudaFree(block));
            }
        }
        MUST(cudaDeviceSynchronize());
    }
    const double ms = seconds_since(start) * 1e3 / rounds;
    MUST(cudaMemcpy(&count, wrong, 8, cudaMemcpyDeviceToHost));
    long held = 0;
    for (const auto &kind : KINDS) {
        held += static_cast<long>(THREADS) * kind.blocks * kind.bytes;
    }
    std::printf("held %ld\nfailures %ld\nwrong %llu\nms %.1f\n", held, failures.load(), count, ms);
    return 0;
}
