// How many pairs several threads make at once: `threads BACKEND PAIRS [BYTES]`, PAIRS being those of all threads together. Prints
// `own|cross THREADS MILLIONS`, pairs a second in all, for 1, 4 and 16 threads. `own`: each frees what it allocated, of
// a window of 16 blocks of mixed sizes (512 B to 1 MiB), or of BYTES. `cross`: each frees what another one allocated, handed over in
// batches of 64.
#include "backends.hpp"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

static const std::size_t SIZES[] = {512, 4096, 64 << 10, 1 << 20};
static const int WINDOW = 16, BATCH = 64;
static std::size_t only = 0; // the one size, or 0 for all

struct Block {
    void *address = nullptr;
    std::size_t bytes = 0;
};

// What a thread hands to the next one; `full` says whose turn it is.
struct alignas(128) Mailbox {
    std::atomic<bool> full{false};
    Block blocks[BATCH];
};

class Run {
public:
    Run(const Backend &of, bool crossing, int count, long pairs)
        : backend(of), cross(crossing), threads(count), each(pairs / count / BATCH * BATCH), mailboxes(new Mailbox[count])
    {
    }

    double millions()
    {
        std::vector<std::thread> all;
        for (int self = 0; self < threads; self++) {
            all.emplace_back([this, self] { work(self); });
        }
        arrive(threads + 1);
        const auto start = Clock::now();
        arrive(2 * (threads + 1));
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        for (auto &one : all) {
            one.join();
        }
        return static_cast<double>(each) * threads / seconds / 1e6;
    }

private:
    const Backend &backend;
    const bool cross;
    const int threads;
    const long each;
    std::unique_ptr<Mailbox[]> mailboxes;
    std::atomic<int> arrived{0};

    // A barrier: goes on once so many have come.
    void arrive(int all)
    {
        arrived.fetch_add(1);
        while (arrived.load() < all) {
            std::this_thread::yield();
        }
    }
    Block take(unsigned &state)
    {
        state = state * 1664525u + 1013904223u;
        const std::size_t bytes = only ? only : SIZES[state >> 30];
        return {backend.alloc(bytes), bytes};
    }
    void give(Block &block)
    {
        if (block.address) {
            backend.free(block.address, block.bytes);
            block = {};
        }
    }
    void own(unsigned state, long pairs)
    {
        Block window[WINDOW];
        for (long i = 0; i < pairs; i++) {
            give(window[i % WINDOW]);
            window[i % WINDOW] = take(state);
        }
        for (Block &block : window) {
            give(block);
        }
    }
    static void wait_for(const Mailbox &mailbox, bool full)
    {
        for (int spins = 0; mailbox.full.load(std::memory_order_acquire) != full; spins++) {
            if (spins > 1000) {
                std::this_thread::yield();
            }
        }
    }
    void crossing(int self, unsigned state)
    {
        Mailbox &out = mailboxes[self], &in = mailboxes[(self + threads - 1) % threads];
        for (long done = 0; done < each; done += BATCH) {
            wait_for(out, false);
            for (Block &block : out.blocks) {
                block = take(state);
            }
            out.full.store(true, std::memory_order_release);
            wait_for(in, true);
            for (Block &block : in.blocks) {
                give(block);
            }
            in.full.store(false, std::memory_order_release);
        }
    }
    void work(int self)
    {
        const unsigned state = 7919u * static_cast<unsigned>(self) + 1;
        MUST(cudaSetDevice(0));
        own(state, 2 * WINDOW * 4); // fills pools and caches
        arrive(threads + 1);
        if (cross) {
            crossing(self, state);
        } else {
            own(state, each);
        }
        arrive(2 * (threads + 1));
    }
};

int main(int argc, char **argv)
{
    const Backend *backend = argc > 2 ? find_backend(argv[1]) : nullptr;
    const long pairs = argc > 2 ? std::atol(argv[2]) : 0;
    if (!backend || pairs < 16 * BATCH) {
        std::fprintf(stderr, "usage: threads BACKEND PAIRS [BYTES] (a backend that this program was built with; 1024 or more)\n");
        return 2;
    }
    only = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
    MUST(cudaFree(nullptr));
    backend->open();
    for (bool cross : {false, true}) {
        for (int threads : {1, 4, 16}) {
            Run run(*backend, cross, threads, pairs);
            std::printf("%s %d %.4f\n", cross ? "cross" : "own", threads, run.millions());
            std::fflush(stdout);
        }
    }
    std::_Exit(0);
}
