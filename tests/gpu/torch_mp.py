"""CUDA tensors shared between processes by torch.multiprocessing (spawn), written on both sides. Prints RESULT lines
that must not depend on the allocator. Ends with status 7 if this PyTorch cannot share tensors in its present mode."""

import sys

import torch
import torch.multiprocessing as mp

SIZES = (100, 1_000, 4_096, 50_000, 262_144, 262_144, 1_000_000, 3_000_000)
ROUNDS, CHILDREN = 3, 2


def whole_sums(tensors):
    """Sums of integers are the same in every order."""
    return [int(tensor.sum()) for tensor in tensors]


def make(number):
    return [torch.arange(size, device="cuda") * (i + 1) + number for i, size in enumerate(SIZES)]


def child(number, inbox, outbox):
    """Reads and writes the parent's tensors; then gives its own away, and reads what the parent wrote to them."""
    for _ in range(ROUNDS):
        theirs = inbox.get()
        sums = whole_sums(theirs)
        for tensor in theirs:
            tensor[::2] *= 3
            tensor[1::2] += number
        torch.cuda.synchronize()
        own = make(1_000 * number)
        torch.cuda.synchronize()
        outbox.put((sums, own))
        inbox.get()
        outbox.put(whole_sums(own))
        del theirs, own, tensor
        inbox.get()
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()


def main():
    # Once much is held, the pool takes regions that are larger than PyTorch's segments, so that several share one.
    held = torch.empty(600 << 20, dtype=torch.uint8, device="cuda")
    try:
        torch.ones(4, device="cuda").untyped_storage()._share_cuda_()
    except RuntimeError as error:
        print(f"cannot share: {str(error).splitlines()[0]}", flush=True)
        sys.exit(7)
    context = mp.get_context("spawn")
    queues = [(context.Queue(), context.Queue()) for _ in range(CHILDREN)]
    children = [context.Process(target=child, args=(i + 1, *pair), daemon=True) for i, pair in enumerate(queues)]
    for process in children:
        process.start()
    for round_number in range(ROUNDS):
        for i, (to_child, from_child) in enumerate(queues):
            mine = make(round_number)
            torch.cuda.synchronize()
            to_child.put(mine)
            sums, theirs = from_child.get(timeout=60)
            name = f"RESULT round {round_number} child {i}"
            print(f"{name} read {sums}, parent reads {whole_sums(mine)} {whole_sums(theirs)}")
            for tensor in theirs:
                tensor[::3] -= 7
            torch.cuda.synchronize()
            to_child.put("written")
            print(f"{name} finds {from_child.get(timeout=60)}")
            del theirs, tensor
            torch.cuda.ipc_collect()
            to_child.put("dropped")
            # What was shared goes, and other memory takes its place.
            del mine
            torch.cuda.ipc_collect()
            torch.cuda.empty_cache()
            noise = [torch.full((size,), 9, device="cuda") for size in SIZES]
            print(f"RESULT round {round_number} noise {whole_sums(noise)}", flush=True)
            del noise
    for process in children:
        process.join(60)
    print(f"RESULT status {[process.exitcode for process in children]}", flush=True)
    del held


if __name__ == "__main__":
    main()
