#!/usr/bin/env python3
"""Who holds the memory of a PyTorch job: keeps 2 GiB in `remember`, computes beside it, and ends without freeing them.

    torch_sites.py STEPS              does so many
    torch_sites.py turns STEPS        so many whenever turns.py says so
    torch_sites.py check REPORT       prints how many samples there are, how many with Python, and what that place holds
"""

import json
import os
import sys
import time

from turn import take_turns


def remember(kept, size):
    import torch

    kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))


def job():
    """Returns what does so many steps, in milliseconds for each."""
    import torch

    kept = []
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def work(steps):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(steps):
            if len(kept) < 8:
                remember(kept, 256 << 20)
            optimizer.zero_grad()
            model(torch.randn(4096, 2048, device="cuda")).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - begun) / steps

    return work


def check(path):
    with open(path, encoding="utf-8") as file:
        sites = json.load(file)["devices"][0]["sites"]
    leak = python = 0
    for site in sites["sites"]:
        frames = [sites["frames"][at] for at in site["stack"]]
        python += site["samples"] * any("file" in frame for frame in frames)
        if any(frame.get("function") == "remember" and "file" in frame for frame in frames):
            leak += site["live_bytes"]
    for name, figure in [("python", python), ("samples", sites["all"]["samples"]), ("leak_mib", leak >> 20)]:
        print(name, figure)
    print("fact", sites["python"])


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check(sys.argv[2])
    else:
        work = job()
        if sys.argv[1] == "turns":
            take_turns(lambda: (work(1), work(int(sys.argv[2])))[1])
        else:
            work(int(sys.argv[1]))
        # The interpreter would free on its way out what is to be found.
        os._exit(0)
