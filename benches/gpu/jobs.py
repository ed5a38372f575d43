"""Whole PyTorch training jobs with random weights: what an allocator costs or saves a real program.

`jobs.py JOB STEPS [DEVICE|turns]` with JOB among
  gpt     a language model of 12 layers: AMP, batches of variable length, activation checkpointing every third step
  resnet  a residual net of 50 layers: AMP with gradient scaling, images of variable size, an evaluation every eighth step
  unet    a U-Net: AMP, images of variable height and width
  streams small work on four side streams, whose results the host asks for in each step
  generate a language model of 16 layers writes text: batches of prompts of variable length, keys and values grow word by word
  rnn     an LSTM of three layers: sequences of variable length
  mixed   convolutions on images of every size, with evaluations between; a little of each step is kept for twenty steps
The same steps are done twice over the same inputs; the first time loads kernels and fills caches. With `turns` one is done after the
other, round and round, whenever tests/gpu/turns.py says so. Printed are
  TIME FIRST SECOND    milliseconds a step in each (not with `turns`)
  LOSS VALUE           of the last step, for the reader
  MEMORY MIB           most that PyTorch's own allocator reserved (0 if its cache is off)
"""

import os
import random
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/gpu"))
from torch_jobs import CONTEXT, VOCABULARY, Gpt  # noqa: E402
from torch_jobs import streams as side_streams  # noqa: E402
from turn import take_turns  # noqa: E402

HOW = sys.argv[3] if len(sys.argv) > 3 else "cuda"
DEVICE = "cuda" if HOW == "turns" else HOW


def gpt():
    """Returns a step."""
    model = Gpt().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step(i, rng):
        batch, length = rng.choice([4, 8, 12]), rng.randrange(64, CONTEXT)
        tokens = torch.randint(0, VOCABULARY, (batch, length + 1), device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = model(tokens[:, :-1], save_memory=i % 3 == 0)
            loss = F.cross_entropy(logits.float().view(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


class Bottleneck(nn.Module):
    """Three convolutions beside a short cut; the middle one may halve the image."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.path = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.short = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.path(x) + self.short(x), inplace=True)


def residual_net():
    """The 50 layers of the usual plan: 3, 4, 6 and 3 blocks of rising width."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        width = 64 << stage
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if stage and block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def resnet():
    """Returns a step."""
    model = residual_net().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(DEVICE)

    def step(i, rng):
        side, batch = rng.choice([160, 192, 224, 256, 288]), rng.choice([16, 24, 32])
        images = torch.randn(batch, 3, side, side, device=DEVICE)
        labels = torch.randint(0, 1000, (batch,), device=DEVICE)
        with torch.autocast(DEVICE, torch.float16 if DEVICE == "cuda" else torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if i % 8 == 7:
            model.eval()
            with torch.no_grad():
                model(torch.randn(64, 3, 224, 224, device=DEVICE)).argmax(1).cpu()
            model.train()
        return loss.detach()

    return step


def double_convolution(inputs, outputs):
    """What stands at every level of the U-Net."""
    layers = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU()]
    return nn.Sequential(*layers)


class Unet(nn.Module):
    """Four levels down, three up, each with what was there on the way down beside it."""

    def __init__(self, width=64):
        super().__init__()
        self.down = nn.ModuleList(
            double_convolution(i, o) for i, o in [(4, width), (width, 2 * width), (2 * width, 4 * width), (4 * width, 8 * width)]
        )
        self.up = nn.ModuleList(
            double_convolution(i, o) for i, o in [(12 * width, 4 * width), (6 * width, 2 * width), (3 * width, width)]
        )
        self.out = nn.Conv2d(width, 4, 1)

    def forward(self, x):
        beside = []
        for level in self.down:
            if len(beside):
                x = F.avg_pool2d(x, 2)
            x = level(x)
            beside.append(x)
        beside.pop()
        for level in self.up:
            x = level(torch.cat([F.interpolate(x, scale_factor=2.0), beside.pop()], 1))
        return self.out(x)


def unet():
    """Returns a step."""
    model = Unet().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step(i, rng):
        height, width = (rng.choice([64, 96, 128, 160, 192]) for _ in range(2))
        images = torch.randn(rng.choice([2, 4, 6]), 4, height, width, device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = F.mse_loss(model(images).float(), images)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def streams():
    """Returns a step."""
    step, left_behind = side_streams()

    def checked(i, rng):
        total = step(i, rng)
        assert left_behind().startswith("wrong=0"), left_behind()
        return total

    return checked


class Writer:
    """A decoder without training, whose keys and values are made longer by concatenation."""

    WIDTH, LAYERS, HEADS = 1024, 16, 16

    def __init__(self):
        def linear(inputs, outputs):
            return nn.Linear(inputs, outputs, device=DEVICE, dtype=torch.bfloat16)

        width = self.WIDTH
        self.words = nn.Embedding(VOCABULARY, width, device=DEVICE, dtype=torch.bfloat16)
        self.layers = [
            (linear(width, 3 * width), linear(width, width), linear(width, 4 * width), linear(4 * width, width))
            for _ in range(self.LAYERS)
        ]
        self.out = linear(width, VOCABULARY)

    def write(self, tokens, count):
        """The mean of the last step's logits, after `count` words."""
        known, width = [None] * self.LAYERS, self.WIDTH
        for number in range(count):
            x = self.words(tokens)
            batch, length, _ = x.shape
            for at, (mix, join, up, down) in enumerate(self.layers):
                parts = mix(F.layer_norm(x, (width,))).view(batch, length, 3, self.HEADS, width // self.HEADS)
                q, k, v = parts.permute(2, 0, 3, 1, 4)
                if known[at] is not None:
                    k, v = (torch.cat(pair, 2) for pair in zip(known[at], (k, v)))
                known[at] = (k, v)
                seen = F.scaled_dot_product_attention(q, k, v, is_causal=number == 0)
                x = x + join(seen.transpose(1, 2).reshape(batch, length, width))
                x = x + down(F.gelu(up(F.layer_norm(x, (width,)))))
            logits = self.out(x[:, -1]).float()
            tokens = torch.multinomial(F.softmax(logits, -1), 1)
        return logits.mean()


def generate():
    """Returns a step."""
    writer = Writer()

    @torch.no_grad()
    def step(_, rng):
        batch, length, count = rng.choice([4, 16, 32]), rng.randrange(64, 700), rng.randrange(8, 40)
        return writer.write(torch.randint(0, VOCABULARY, (batch, length), device=DEVICE), count)

    return step


def rnn():
    """Returns a step."""
    words, inner = 8000, 1024
    model = nn.ModuleList([nn.Embedding(words, 512), nn.LSTM(512, inner, 3, batch_first=True), nn.Linear(inner, words)])
    model.to(DEVICE)
    embed, lstm, out = model
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)

    def step(_, rng):
        batch, length = rng.choice([16, 32, 64]), rng.randrange(20, 400)
        tokens = torch.randint(0, words, (batch, length + 1), device=DEVICE)
        hidden, _ = lstm(embed(tokens[:, :-1]))
        loss = F.cross_entropy(out(hidden).view(-1, words), tokens[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def mixed():
    """Returns a step."""
    layers = []
    for inputs, outputs in [(3, 64), (64, 128), (128, 256), (256, 512)]:
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.ReLU()]
    model = nn.Sequential(*layers[:-1]).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    kept = []

    def step(i, rng):
        if i // 10 % 3 == 2:
            with torch.no_grad():
                result = model(torch.randn(64, 3, 512, 512, device=DEVICE))
                kept.append(result.mean((2, 3)))
        else:
            height, width = (rng.randrange(128, 640, 32) for _ in range(2))
            result = model(torch.randn(rng.choice([8, 16, 32]), 3, height, width, device=DEVICE))
            kept.append(result.detach()[:4].clone())
            (result**2).mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        del kept[:-20]
        return result.detach().float().mean()

    return step


JOBS = {job.__name__: job for job in (gpt, resnet, unet, streams, generate, rnn, mixed)}


def wait():
    """For the device."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def once(step, steps):
    """The steps over the same inputs as every time: milliseconds a step, and the last loss."""
    torch.manual_seed(2)
    rng = random.Random(3)
    wait()
    start = time.perf_counter()
    for i in range(steps):
        loss = step(i, rng)
    wait()
    return (time.perf_counter() - start) / steps * 1e3, loss


def one_by_one(step, steps):
    """Returns what does the next step, each time around over the same inputs, and returns its milliseconds."""
    number = -1

    def timed():
        torch.manual_seed(number)
        wait()
        start = time.perf_counter()
        step(number, random.Random(number))
        wait()
        return 1e3 * (time.perf_counter() - start)

    def piece():
        nonlocal number
        number = (number + 1) % steps
        # A process that has just been woken takes a step to be itself again.
        return timed() and timed()

    return piece


def main():
    name, steps = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(1)
    step = JOBS[name]()
    if HOW == "turns":
        piece = one_by_one(step, steps)
        for _ in range(steps):
            piece()
        take_turns(piece)
        loss = once(step, 1)[1]
    else:
        (first, _), (second, loss) = once(step, steps), once(step, steps)
        print(f"TIME {first:.2f} {second:.2f}")
    print(f"LOSS {loss.item():.4f}")
    print(f"MEMORY {torch.cuda.max_memory_reserved() >> 20 if DEVICE == 'cuda' else 0}", flush=True)


if __name__ == "__main__":
    main()
