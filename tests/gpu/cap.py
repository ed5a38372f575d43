"""Takes device memory until the framework says that there is no more: `cap.py torch|cupy|jax`. Prints
  GOT BYTES          what it held when it was stopped
  STOPPED NAME: …    the exception
  AGAIN 0|1          whether memory can be had again after some was given back
  DEVICE MIB         growth of the device's used memory as seen from outside, the process's context included
"""

import os
import subprocess
import sys

PIECE = 256 << 20
TOO_MUCH = 20 << 30


def device_used_mib():
    """Used memory of device 0 by nvidia-smi, run without the library."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    query = ["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, env=environment, capture_output=True, check=True, text=True).stdout.split()[0])


def torch_piece():
    import torch

    piece = torch.ones(PIECE, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    return piece


def cupy_piece():
    import cupy

    piece = cupy.ones(PIECE, dtype=cupy.uint8)
    cupy.cuda.Device().synchronize()
    return piece


def jax_piece():
    import jax.numpy as jnp

    return jnp.ones(PIECE, jnp.uint8).block_until_ready()


def main():
    take = {"torch": torch_piece, "cupy": cupy_piece, "jax": jax_piece}[sys.argv[1]]
    before = device_used_mib()
    held, stopped = [], None
    while stopped is None and len(held) * PIECE < TOO_MUCH:
        try:
            held.append(take())
        except Exception as error:  # which one it is, is the question
            stopped = f"{type(error).__module__}.{type(error).__name__}: {str(error).splitlines()[0]}"
    used = device_used_mib() - before
    print(f"GOT {len(held) * PIECE}")
    print(f"STOPPED {stopped}")
    print(f"DEVICE {used}")
    del held[-4:]
    try:
        held.append(take())
        print("AGAIN 1", flush=True)
    except Exception as error:
        print(f"AGAIN 0 {type(error).__name__}: {error}", flush=True)


main()
