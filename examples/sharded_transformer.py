"""A transformer block trained data and tensor parallel by several processes: it learns Fibonacci sequences modulo 13.

One command starts all processes, torchrun does it too:

python examples/sharded_transformer.py --processes 8 --steps 60
torchrun --standalone --nproc-per-node 8 examples/sharded_transformer.py --steps 60
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys

import numpy as np

import fuser
import fuser.numpy as jnp
from fuser import NamedSharding, P

TOKENS, WIDTH, HEADS, LENGTH = 13, 64, 4, 16

# How each weight lies: heads and hidden units are divided over the axis "model", all else is on every device.
SPECS = {
    "embed": P(), "position": P(), "q": P(None, "model"), "k": P(None, "model"), "v": P(None, "model"), "o": P("model"),
    "in": P(None, "model"), "out": P("model"), "head": P(),
}  # fmt: skip


def initial(rng):
    """Random weights."""
    shapes = {
        "embed": (TOKENS, WIDTH), "position": (LENGTH, WIDTH), "q": (WIDTH, HEADS, WIDTH // HEADS), "k": (WIDTH, HEADS, WIDTH // HEADS),
        "v": (WIDTH, HEADS, WIDTH // HEADS), "o": (HEADS, WIDTH // HEADS, WIDTH), "in": (WIDTH, 4 * WIDTH), "out": (4 * WIDTH, WIDTH),
        "head": (WIDTH, TOKENS),
    }  # fmt: skip
    return {name: (rng.normal(size=shape) * 0.1).astype(np.float32) for name, shape in shapes.items()}


def normalized(x):
    """Each position with mean 0 and variance 1."""
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def logits(p, tokens):
    """One block: causal attention, then a multilayer perceptron, each added to its input."""
    x = p["embed"][tokens] + p["position"]
    y = normalized(x)
    q, k, v = (jnp.einsum("btd,dhe->bhte", y, p[name]) for name in "qkv")
    scores = jnp.einsum("bhte,bhse->bhts", q, k) / np.sqrt(WIDTH // HEADS).astype(np.float32)
    seen = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    mixed = jnp.einsum("bhts,bhse->bhte", fuser.nn.softmax(jnp.where(seen, scores, -1e9), -1), v)
    x = x + jnp.einsum("bhte,hed->btd", mixed, p["o"])
    x = x + fuser.nn.gelu(normalized(x) @ p["in"]) @ p["out"]
    return normalized(x) @ p["head"]


def loss(p, tokens, targets):
    """Mean cross entropy of the next token; the first two positions cannot know it."""
    chosen = fuser.nn.log_softmax(logits(p, tokens), -1) * fuser.nn.one_hot(targets, TOKENS)
    return -chosen[:, 1:].sum(-1).mean()


@fuser.jit
def step(p, momentum, tokens, targets):
    """One step of gradient descent with momentum."""
    value, slopes = fuser.value_and_grad(loss)(p, tokens, targets)
    momentum = fuser.tree.map(lambda m, s: 0.9 * m + s, momentum, slopes)
    return value, fuser.tree.map(lambda w, m: w - 0.05 * m, p, momentum), momentum


def sequences(rng, count):
    """Sequences in which each token is the sum of the two before, and the same one token later."""
    found = [rng.integers(TOKENS, size=count), rng.integers(TOKENS, size=count)]
    while len(found) <= LENGTH:
        found.append((found[-1] + found[-2]) % TOKENS)
    whole = np.stack(found, 1).astype(np.int32)
    return whole[:, :-1], whole[:, 1:]


def train(steps, batch):
    """Train on all devices of all processes; the first and last loss."""
    count = fuser.device_count()
    model = 2 if count > 1 else 1
    auto = fuser.sharding.AxisType.Auto
    mesh = fuser.make_mesh((count // model, model), ("data", "model"), axis_types=(auto, auto))
    put = lambda value, spec: fuser.device_put(value, NamedSharding(mesh, spec))
    params = {name: put(value, SPECS[name]) for name, value in initial(np.random.default_rng(0)).items()}
    momentum = {name: put(np.zeros(value.shape, np.float32), SPECS[name]) for name, value in params.items()}
    rng, first, value = np.random.default_rng(1), None, None
    for number in range(steps):
        tokens, targets = (put(part, P("data")) for part in sequences(rng, batch))
        value, params, momentum = step(params, momentum, tokens, targets)
        first = float(value) if first is None else first
        if fuser.process_index() == 0 and number % 20 == 0:
            print(f"step {number}: loss {float(value):.3f}", flush=True)
    return first, float(value)


def start(processes):
    """This program once a process; ends all if one fails. Their exit status."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    running = [subprocess.Popen([sys.executable, *sys.argv], env={**common, "RANK": str(n)}) for n in range(processes)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that it ends them too
    try:
        return max(abs(process.wait()) for process in running)
    finally:
        for process in running:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    if options.processes > 1 and "RANK" not in os.environ:
        sys.exit(start(options.processes))
    if "RANK" in os.environ:
        fuser.distributed.initialize()
    first, last = train(options.steps, options.batch)
    if fuser.process_index() == 0:
        print(f"{fuser.process_count()} processes, {fuser.device_count()} devices: loss from {first:.3f} to {last:.3f}")


if __name__ == "__main__":
    main()
