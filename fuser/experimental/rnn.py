"""LSTM layers under jax.experimental.rnn's names, with cuDNN's layout of weights: scans, differentiated as such.

The flat weights hold, layer by layer and for each direction, W_ih (4h, inputs) and W_hh (4h, h), and then b_ih and b_hh (4h,);
the rows are those of the gates i, f, g, o. Hochreiter and Schmidhuber, "Long short-term memory" (1997), with forget gates.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser import lax, nn, random
from fuser import numpy as fnp
from fuser.gaps import absent

Weights = dict[int, Any]


def _shapes(input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> list[tuple[int, ...]]:
    """The shapes of the parts of the flat weights."""
    directions = 2 if bidirectional else 1
    matrices: list[tuple[int, ...]] = []
    for layer in range(num_layers * directions):
        width = input_size if layer < directions else directions * hidden_size
        matrices += [(4 * hidden_size, width), (4 * hidden_size, hidden_size)]
    return matrices + [(4 * hidden_size,)] * (2 * num_layers * directions)


def get_num_params_in_lstm(input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> int:
    """How many weights there are."""
    return sum(map(math.prod, _shapes(input_size, hidden_size, num_layers, bidirectional)))


def init_lstm_weight(rng: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> Any:
    """Flat float32 weights, uniform in ±sqrt(1 / hidden_size)."""
    bound = np.sqrt(1.0 / hidden_size)
    count = get_num_params_in_lstm(input_size, hidden_size, num_layers, bidirectional)
    return random.uniform(rng, (count,), fnp.float32, minval=-bound, maxval=bound)


def _parts(weights: Any, *sizes: Any) -> list[Any]:
    shapes = _shapes(*sizes)
    ends = np.cumsum([math.prod(s) for s in shapes])
    return [weights[end - math.prod(s) : end].reshape(s) for end, s in zip(map(int, ends), shapes)]


def swap_lstm_gates(weights: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> Any:
    """The flat weights with the last two gates exchanged."""
    parts = _parts(fnp.asarray(weights), input_size, hidden_size, num_layers, bidirectional)
    gates = [fnp.split(part, 4) for part in parts]
    return fnp.concatenate([fnp.concatenate([i, f, o, g]).ravel() for i, f, g, o in gates])


def unpack_lstm_weights(
    weights: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> tuple[Weights, Weights, Weights, Weights]:
    """(W_ih, W_hh, b_ih, b_hh) by the number of the layer and direction."""
    parts = _parts(weights, input_size, hidden_size, num_layers, bidirectional)
    half = len(parts) // 2
    number = lambda found: dict(enumerate(found))
    return number(parts[:half:2]), number(parts[1:half:2]), number(parts[half::2]), number(parts[half + 1 :: 2])


def lstm(
    x: Any, h_0: Any, c_0: Any, weights: Any, seq_lengths: Any, input_size: int, hidden_size: int, num_layers: int,
    dropout: float, bidirectional: bool, precision: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """(y, h_n, c_n) of layers of LSTM cells over sequences x (batch, steps, input_size) of these lengths (batch,), int32.

    y is (batch, steps, directions·hidden_size), zero behind a sequence's end; h and c are (layers·directions, batch, hidden_size).
    NotImplementedError for dropout.
    """
    parts = unpack_lstm_weights(weights, input_size, hidden_size, num_layers, bidirectional)
    return lstm_ref(x, h_0, c_0, *parts, seq_lengths, input_size, hidden_size, num_layers, dropout, bidirectional)


def lstm_ref(
    x: Any, h_0: Any, c_0: Any, W_ih: Weights, W_hh: Weights, b_ih: Weights, b_hh: Weights, seq_lengths: Any,
    input_size: int, hidden_size: int, num_layers: int, dropout: float, bidirectional: bool,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """As `lstm`, with the weights of each layer and direction apart."""
    if seq_lengths.dtype != np.int32:
        raise NotImplementedError(f"`seq_lengths` can only be int32, got {seq_lengths.dtype}")
    if dropout != 0.0:
        raise NotImplementedError("lstm has no dropout: apply it between layers of your own")
    directions = 2 if bidirectional else 1
    steps = fnp.arange(x.shape[1], dtype=np.int32)[:, None]
    running = (steps < seq_lengths)[..., None]
    backwards = fnp.where(running[..., 0], seq_lengths - 1 - steps, steps)
    values, last_h, last_c = x.transpose(1, 0, 2), [], []
    for first in range(0, num_layers * directions, directions):
        outputs = []
        for layer in range(first, first + directions):
            reverse = layer > first
            inputs = _rows(values, backwards) if reverse else values
            cell = (W_ih[layer], W_hh[layer], b_ih[layer], b_hh[layer])
            (h, c), y = _run(cell, h_0[layer], c_0[layer], inputs, running)
            y = fnp.where(running, y, 0)
            outputs.append(_rows(y, backwards) if reverse else y)
            last_h.append(h)
            last_c.append(c)
        values = fnp.concatenate(outputs, -1)
    return values.transpose(1, 0, 2), fnp.stack(last_h), fnp.stack(last_c)


def _rows(values: Any, order: Any) -> Any:
    """(steps, batch, n) with the steps of each sequence in another order."""
    return fnp.take_along_axis(values, order[..., None], 0)


def _run(cell: Any, h: Any, c: Any, inputs: Any, running: Any) -> Any:
    """The last state of one layer, and its outputs (steps, batch, hidden_size); a sequence that has ended keeps its state."""
    w_ih, w_hh, b_ih, b_hh = cell

    def step(state: Any, given: Any) -> Any:
        (h, c), (x, goes_on) = state, given
        i, f, g, o = fnp.split(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh, 4, -1)
        new_c = nn.sigmoid(f) * c + nn.sigmoid(i) * fnp.tanh(g)
        new_h = nn.sigmoid(o) * fnp.tanh(new_c)
        return (fnp.where(goes_on, new_h, h), fnp.where(goes_on, new_c, c)), new_h

    return lax.scan(step, (h, c), (inputs, running))


__getattr__ = absent(__name__)
