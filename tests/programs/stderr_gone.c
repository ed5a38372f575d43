/*
 * What becomes of file descriptor 2 before the end.
 *
 *   stderr_gone pipe    it is a pipe whose reader has gone
 *   stderr_gone file    the program closed it, and a data file of its own got the number
 *   stderr_gone closed  it was closed from the start, and a data file got the number after the first CUDA call
 */
#define _GNU_SOURCE
#include <cuda.h>

#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "pipe";
    CUcontext context;
    CUdeviceptr p;
    int ends[2];
    if (!strcmp(way, "closed")) close(2);
    if (!strcmp(way, "pipe")) {
        OK(pipe(ends));
        ASSERT(dup2(ends[1], 2) == 2);
        close(ends[1]);
    }
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&p, 1 << 20));
    if (!strcmp(way, "pipe")) {
        signal(SIGPIPE, SIG_DFL);
        close(ends[0]);
    } else {
        close(2);
        if (open("data", O_CREAT | O_TRUNC | O_WRONLY, 0644) != 2) return 9;
        if (write(2, "DATA", 4) != 4) return 8;
    }
    return 3;
}
