#!/usr/bin/env python3
"""Who holds the memory of a PyTorch job: keeps 2 GiB in `remember`, computes beside it, and ends.

    torch_sites.py [STEPS]            prints the time of a step: us
    torch_sites.py check REPORT       prints how many samples there are, how many with Python, and what that place holds
"""

import json
import sys
import time


def remember(kept, size):
    import torch

    kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))


def work(steps):
    import torch

    kept = []
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(steps + 10):
        if step == 10:
            torch.cuda.synchronize()
            begun = time.perf_counter()
        if step < 8:
            remember(kept, 256 << 20)
        optimizer.zero_grad()
        model(torch.randn(4096, 2048, device="cuda")).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    print(f"us {round(1e6 * (time.perf_counter() - begun) / steps)}")


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
    if sys.argv[1:2] == ["check"]:
        check(sys.argv[2])
    else:
        work(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
