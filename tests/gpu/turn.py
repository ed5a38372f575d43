"""The side of a job that `turns.py` compares: does a piece of its work whenever it is told to.

It says `ready` once it is warm. For each line on its input it does the piece once and says `ms MILLISECONDS`; what it prints
after the input has ended is passed on.
"""

import sys


def take_turns(piece):
    """`piece` does the work, and returns the milliseconds that it took. The first two times load kernels and fill caches."""
    for _ in range(2):
        piece()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(f"ms {piece():.4f}", flush=True)
