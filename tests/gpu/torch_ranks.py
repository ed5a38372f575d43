"""Two GPUs in PyTorch: `torch_ranks.py parallel` trains under DataParallel in one process, `torch_ranks.py ranks` under
DistributedDataParallel in two, with collectives of NCCL around it. Prints RESULT lines that must not depend on the
allocator."""

import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from outcome import digest

# For the spawned ranks too.
torch.use_deterministic_algorithms(True)


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))


def train(net, device, seed):
    """Some steps on inputs of changing size; the last loss."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    for i in range(12):
        given = torch.randn(64 + 32 * (i % 5), 512, generator=generator).to(device)
        loss = nn.functional.mse_loss(net(given), given * 0.5)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return loss.item()


def weights(net):
    return digest(*[parameter.detach().cpu().numpy() for parameter in net.parameters()])


def parallel():
    net = nn.DataParallel(model().cuda(0), device_ids=[0, 1])
    loss = train(net, "cuda:0", 2)
    print(f"RESULT parallel {loss:.6f} {weights(net)}", flush=True)


def rank(number, address):
    torch.cuda.set_device(number)
    dist.init_process_group("nccl", init_method=address, rank=number, world_size=2)
    device = torch.device("cuda", number)
    sums = []
    for i in range(60):
        size = 1_000 + (i * 7919) % 500_000
        numbers = torch.arange(size, device=device) * (number + 1) + i
        dist.all_reduce(numbers)
        parts = [torch.empty(size, dtype=numbers.dtype, device=device) for _ in range(2)]
        dist.all_gather(parts, numbers + number)
        work = dist.broadcast(parts[0], src=i % 2, async_op=True)
        noise = torch.full((size,), 9, device=device)
        work.wait()
        sums.append(numbers.sum() + (parts[0] * 2 + parts[1]).sum())
        del numbers, parts, noise
    total = torch.stack(sums)
    net = nn.parallel.DistributedDataParallel(model().to(device), device_ids=[number])
    loss = train(net, device, 2 + number)
    line = f"RESULT rank {number} {digest(total.cpu().numpy())} {loss:.6f} {weights(net)}"
    lines = [None, None]
    dist.all_gather_object(lines, line)
    if number == 0:
        print("\n".join(lines), flush=True)
    dist.destroy_process_group()


def main():
    if sys.argv[1] == "parallel":
        parallel()
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    mp.spawn(rank, args=(address,), nprocs=2)


if __name__ == "__main__":
    # NVLink's multicast is not to be had in every machine.
    os.environ["NCCL_NVLS_ENABLE"] = "0"
    main()
