"""A small JAX training job over several shapes. Prints a RESULT line and TIME seconds."""

import hashlib
import time

import jax
import jax.numpy as jnp
import numpy


def loss(weights, x, y):
    for w in weights[:-1]:
        x = jax.nn.relu(x @ w)
    return jnp.mean((x @ weights[-1] - y) ** 2)


@jax.jit
def step(weights, x, y):
    value, gradients = jax.value_and_grad(loss)(weights, x, y)
    return [w - 1e-3 * g for w, g in zip(weights, gradients)], value


def main():
    jax.config.update("jax_default_matmul_precision", "highest")
    random = numpy.random.default_rng(1)
    weights = [jnp.asarray(random.normal(0, 0.02, shape), jnp.float32) for shape in [(512, 2048), (2048, 2048), (2048, 64)]]
    state, start = hashlib.sha256(), None
    for i in range(120):
        rows = (256, 512, 1024, 1536)[i % 4]
        x = jnp.asarray(random.normal(size=(rows, 512)), jnp.float32)
        y = jnp.asarray(random.normal(size=(rows, 64)), jnp.float32)
        weights, value = step(weights, x, y)
        state.update(numpy.asarray(value).tobytes())
        if i == 8:
            start = time.perf_counter()
    for w in weights:
        state.update(numpy.asarray(w).tobytes())
    print(f"RESULT jax last={float(value):.6f} all={state.hexdigest()[:16]}")
    print(f"TIME {time.perf_counter() - start:.2f}", flush=True)


main()
