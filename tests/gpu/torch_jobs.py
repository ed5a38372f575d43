"""PyTorch training jobs with random weights, the same to the last bit from run to run.

`torch_jobs.py JOB:STEPS…` with JOB among `gpt` (AMP, variable batch and length, checkpointing) and `streams` (side
streams whose results are checked). Every job runs twice over the same inputs; printed are
  RESULT JOB …            what must not depend on the allocator
  TIME JOB FIRST SECOND   milliseconds a step in each pass
  MEMORY MIB              most that PyTorch's own allocator reserved (0 if its cache is off)
"""

import hashlib
import random
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, LAYERS, HEADS, CONTEXT = 32000, 768, 12, 12, 1024


class Layer(nn.Module):
    """A transformer layer, normalised before attention and before the feed-forward net."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.project(self.norms[0](x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.out(mixed.reshape(batch, length, WIDTH))
        return x + self.feed(self.norms[1](x))


class Gpt(nn.Module):
    """A small language model."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, save_memory):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if save_memory else layer(x)
        return self.head(self.norm(x))


def digest(tensors):
    """A hash of the tensors' bits."""
    state = hashlib.sha256()
    for tensor in tensors:
        state.update(tensor.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()[:16]


def gpt():
    """Returns a step, and what it leaves behind."""
    model = Gpt().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step(i, rng):
        batch, length = rng.choice([4, 8, 12]), rng.randrange(64, CONTEXT)
        tokens = torch.randint(0, VOCABULARY, (batch, length + 1), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens[:, :-1], save_memory=i % 3 == 0)
            loss = F.cross_entropy(logits.float().view(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step, lambda: digest(model.parameters())


def streams():
    """Every stream computes something whose value is known, with temporaries that die while it still runs."""
    sides = [torch.cuda.Stream() for _ in range(4)]
    wrong = []

    def step(i, rng):
        main, results = torch.cuda.current_stream(), []
        for number, side in enumerate(sides, 1):
            rows = rng.randrange(500, 3000)
            side.wait_stream(main)
            with torch.cuda.stream(side):
                for _ in range(4):
                    left = torch.full((rows, 1024), float(number), device="cuda")
                    product = left @ torch.ones(1024, 512, device="cuda")
                    total = (product * 2).sum(dtype=torch.float64)
                    results.append((total, rows * 512 * 1024.0 * number * 2))
                    del left, product
        for side in sides:
            main.wait_stream(side)
        wrong.extend((i, total.item(), want) for total, want in results if total.item() != want)
        return torch.stack([total for total, _ in results]).sum()

    return step, lambda: f"wrong={len(wrong)}{wrong[:2]}"


def main():
    torch.use_deterministic_algorithms(True)
    # Of the attention kernels only flash attention has a deterministic backward pass for these shapes.
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.utils.deterministic.fill_uninitialized_memory = False
    for argument in sys.argv[1:]:
        name, steps = argument.split(":")
        torch.manual_seed(1)
        step, left_behind = {"gpt": gpt, "streams": streams}[name]()
        losses, times = [], []
        for _ in range(2):
            torch.manual_seed(2)
            rng = random.Random(3)
            torch.cuda.synchronize()
            start = time.perf_counter()
            losses += [step(i, rng) for i in range(int(steps))]
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / int(steps) * 1e3)
        values = torch.stack([loss.double() for loss in losses])
        print(f"RESULT {name} last={losses[-1].item():.6f} losses={digest([values])} left={left_behind()}")
        print(f"TIME {name} {times[0]:.2f} {times[1]:.2f}")
    print(f"MEMORY {torch.cuda.max_memory_reserved() >> 20}", flush=True)


if __name__ == "__main__":
    main()
