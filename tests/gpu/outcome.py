"""How a job says what happened, so that a run with the library and one without can be compared line by line."""

import hashlib
import re


def attempt(name, action):
    """Prints `RESULT NAME VALUE`, the value being what `action` returned or which exception it raised."""
    try:
        value = action()
    except Exception as error:  # which one it is, is what is compared
        text = str(error).strip().splitlines() or [""]
        value = f"raises {type(error).__name__}: {re.sub('0x[0-9a-fA-F]+', '0x', text[0])[:160]}"
    print(f"RESULT {name} {value}", flush=True)


def digest(*arrays):
    """A hash of the bits of NumPy arrays."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(array.tobytes())
    return state.hexdigest()[:16]
