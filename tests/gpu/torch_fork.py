"""Forks of a process that uses the GPU, while quiet and while another thread allocates. The children end by sys.exit,
by os._exit, by an exception, by exec, and by PyTorch's refusal to use CUDA in a forked child. Prints PID, and RESULT
lines with the children's statuses and what the parent computes afterwards."""

import os
import sys
import threading

import torch


def by_sys_exit():
    sys.exit(3)


def by_os_exit():
    os._exit(4)


def by_exception():
    raise KeyError("meant")


def by_exec():
    os.execv(sys.executable, [sys.executable, "-c", "pass"])


def by_cuda():
    try:
        torch.ones(8, device="cuda")
    except RuntimeError:
        os._exit(6)
    os._exit(7)


def forked(end):
    """The status of a child that ends by `end`."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        # What the children say is no part of the comparison.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        end()
        os._exit(8)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main():
    print(f"PID {os.getpid()}")
    numbers = torch.arange(1 << 20, device="cuda")
    print(f"RESULT before {int(numbers.sum())}")
    ends = (by_sys_exit, by_os_exit, by_exception, by_exec, by_cuda)
    parent = os.getpid()
    for _ in range(3):
        try:
            print("RESULT quiet", *[forked(end) for end in ends])
        finally:
            # A child that ends by an exception leaves through here too.
            if os.getpid() == parent:
                numbers += 1
    stop = threading.Event()
    rounds = [0]

    def allocate():
        while not stop.is_set():
            pieces = [torch.full((257 * (i + 1), 1024), 7, device="cuda") for i in range(8)]
            del pieces
            torch.cuda.empty_cache()
            rounds[0] += 1

    busy = threading.Thread(target=allocate)
    busy.start()
    # A lock of PyTorch's may be held at the fork, so these children touch nothing of it.
    statuses = {(forked(by_os_exit), forked(by_exec)) for _ in range(25)}
    stop.set()
    busy.join()
    print(f"RESULT busy {sorted(statuses)} {rounds[0] > 0}")
    print(f"RESULT after {int(numbers.sum())} {float(torch.ones(1 << 20, device='cuda').sum())}", flush=True)


main()
