"""`cuda` of Numba, also where NumPy is newer than Numba expects."""

import numpy

# Names that recent NumPy has dropped and some releases of Numba's CUDA target still look up when imported.
for old, new in (("row_stack", "vstack"), ("in1d", "isin"), ("trapz", "trapezoid")):
    if not hasattr(numpy, old):
        setattr(numpy, old, getattr(numpy, new))

from numba import cuda  # noqa: E402

__all__ = ["cuda"]
