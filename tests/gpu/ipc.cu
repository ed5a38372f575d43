// Blocks exported to other processes. The parent allocates blocks of several sizes, each full of a word of its own, and
// exports all; children open them and look. One child runs in the parent's environment, the other without LD_PRELOAD:
// it may get an error, but never another block's data.
//
// ipc            prints `CHILD SIZE: open CODE, own 0|1` for each block and child
// ipc handles    the same, and what the driver makes of a handle with changed bytes (for a run without the library)
#include "check.cuh"

#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

static const int BLOCKS = 8;
static const size_t SIZES[BLOCKS] = {2 << 20, 512, 64 << 10, 1 << 20, 1 << 20, 3 << 20, 12 << 20, 4096};

struct Parcel {
    cudaIpcMemHandle_t handle;
    unsigned word;
};

static void read_all(void *into, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = read(STDIN_FILENO, static_cast<char *>(into) + done, bytes - done);
        if (got <= 0) {
            std::exit(4); // the parent failed and has said so
        }
        done += got;
    }
}

static int open_code(const cudaIpcMemHandle_t &handle)
{
    void *block = nullptr;
    const int code = cudaIpcOpenMemHandle(&block, handle, cudaIpcMemLazyEnablePeerAccess);
    cudaGetLastError();
    if (code == 0) {
        MUST(cudaIpcCloseMemHandle(block));
    }
    return code;
}

static int child(const char *name, bool variants)
{
    Parcel parcels[BLOCKS];
    read_all(parcels, sizeof parcels);
    MUST(cudaFree(nullptr));
    void *opened[BLOCKS] = {};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            const int code = cudaIpcOpenMemHandle(&opened[i], parcels[i].handle, cudaIpcMemLazyEnablePeerAccess);
            cudaGetLastError();
            unsigned ends[2] = {0, 0};
            if (code == 0) {
                const char *start = static_cast<char *>(opened[i]);
                MUST(cudaMemcpy(&ends[0], start, 4, cudaMemcpyDeviceToHost));
                MUST(cudaMemcpy(&ends[1], start + SIZES[i] - 4, 4, cudaMemcpyDeviceToHost));
            } else {
                opened[i] = nullptr;
            }
            std::printf("%s %zu: open %d, own %d\n", name, SIZES[i], code,
                        ends[0] == parcels[i].word && ends[1] == parcels[i].word);
        }
        for (auto block : opened) {
            if (block) {
                const int code = cudaIpcCloseMemHandle(block);
                std::printf("%s close %d\n", name, code);
            }
        }
    }
    for (int which = 0; variants && which < 2; which++) {
        const cudaIpcMemHandle_t plain = parcels[which].handle;
        cudaIpcMemHandle_t padded = plain, sealed = plain, both;
        std::memcpy(padded.reserved + 56, "offsetgc", 8);
        for (int i = 0; i < 4; i++) {
            sealed.reserved[52 + i] ^= "gpuc"[i];
        }
        both = sealed;
        std::memcpy(both.reserved + 56, "offsetgc", 8);
        std::printf("fact handle of %zu bytes as it is: %d; bytes 56-63 written: %d; bytes 52-55 changed: %d; both: %d\n",
                    SIZES[which], open_code(plain), open_code(padded), open_code(sealed), open_code(both));
    }
    return 0;
}

static pid_t start_child(const char *self, const char *name, bool preload, bool variants, int &to_child)
{
    int ends[2];
    MUST(pipe(ends));
    const pid_t pid = fork(); // before any CUDA call of this process
    if (pid == 0) {
        if (!preload) {
            unsetenv("LD_PRELOAD");
        }
        setenv("GPUCACHE_REPORT", "off", 1);
        dup2(ends[0], STDIN_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(self, self, "child", name, variants ? "variants" : "", (char *)nullptr);
        std::perror("exec");
        _exit(5);
    }
    close(ends[0]);
    to_child = ends[1];
    return pid;
}

int main(int argc, char **argv)
{
    if (argc > 2 && !std::strcmp(argv[1], "child")) {
        return child(argv[2], argc > 3 && argv[3][0]);
    }
    const bool variants = argc > 1 && !std::strcmp(argv[1], "handles");
    int pipes[2], failed = 0;
    pid_t children[2];
    children[0] = start_child("/proc/self/exe", "same", true, variants, pipes[0]);
    children[1] = start_child("/proc/self/exe", "plain", false, false, pipes[1]);
    Parcel parcels[BLOCKS] = {};
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cudaMalloc(&blocks[i], SIZES[i]));
        parcels[i].word = 0x1000001u * (i + 1);
        busy_then_fill<<<64, 256>>>(static_cast<unsigned *>(blocks[i]), static_cast<int>(SIZES[i] / 4),
                                    parcels[i].word, 0);
    }
    MUST(cudaDeviceSynchronize());
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cudaIpcGetMemHandle(&parcels[i].handle, blocks[i]));
    }
    for (int i = 0; i < 2; i++) {
        if (write(pipes[i], parcels, sizeof parcels) != sizeof parcels) {
            failed = 1;
        }
        close(pipes[i]);
    }
    for (const pid_t pid : children) {
        int status = -1;
        waitpid(pid, &status, 0);
        failed |= status != 0;
    }
    for (auto block : blocks) {
        MUST(cudaFree(block));
    }
    return failed;
}
