"""A training step captured in a graph and replayed, with ordinary work between the replays. Prints RESULT lines that
must not depend on the allocator; a graph whose memory was given away in between shows there."""

import hashlib

import torch
from torch import nn


def main():
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    given, wanted = torch.zeros(64, 512, device="cuda"), torch.zeros(64, 512, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(given), wanted)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for i in range(40):
        given.normal_()
        wanted.normal_()
        graph.replay()
        losses.append(loss.detach().clone())
        # Memory comes and goes around the graph's own.
        noise = [torch.full((257 * (i % 7 + 1), 1024), 7.0, device="cuda") for _ in range(8)]
        del noise
        if i % 10 == 9:
            torch.cuda.empty_cache()
    state = hashlib.sha256()
    for tensor in [torch.stack(losses), *model.parameters()]:
        state.update(tensor.detach().cpu().numpy().tobytes())
    print(f"RESULT graph last={losses[-1].item():.6f} all={state.hexdigest()[:16]}", flush=True)


main()
