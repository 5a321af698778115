"""Plans for devices that are not there: figures worked out by hand, and no device that is needed."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import P
from fuser.parallel.network import LINKS, Link, Network, read_network
from fuser.parallel.planning import Machine, plan

MODEL = """
import fuser
import fuser.numpy as fnp
from fuser import P

def step(params, x):
    loss = lambda p: (fnp.tanh(x @ p["in"]) @ p["out"]).mean()
    value, slopes = fuser.value_and_grad(loss)(params)
    return value, fuser.tree.map(lambda p, s: p - 0.1 * s, params, slopes)

def step_args():
    of = lambda *shape: fuser.ShapeDtypeStruct(shape, "float32")
    return {"in": of(1024, 4096), "out": of(4096, 1024)}, of(8192, 1024)

step_specs = ({"in": P(None, "model"), "out": P("model")}, P("data"))
"""


def test_a_product_by_hand() -> None:
    machine, network = Machine(1e12, 1e30, 0.0), Network(Link(1e-6, 1e9), {})
    shapes = tuple(fuser.ShapeDtypeStruct(s, np.float32) for s in ((512, 256), (256, 128)))
    found = plan(lambda a, b: a @ b, shapes, (P(None, "x"), P("x")), {"x": 64}, machine, network)
    assert found.argument_bytes == 4 * (512 * 256 + 256 * 128) // 64 and found.result_bytes == 4 * 512 * 128
    assert found.flops == 2 * 512 * 4 * 128
    (total,) = found.collectives
    sent = 2 * 63 / 64 * 4 * 512 * 128
    assert (total.name, total.axes, total.count, total.sent_bytes) == ("psum", ("x",), 1, sent)
    assert total.seconds == pytest.approx(12e-6 + sent / 1e9)
    assert found.compute_seconds == pytest.approx(found.flops / 1e12)
    assert found.efficiency == pytest.approx(found.compute_seconds / (found.compute_seconds + total.seconds))


@pytest.mark.parametrize("bandwidth", (1e6, 1e9))
def test_what_travels_while_something_is_computed_is_not_waited_for(bandwidth: float) -> None:
    """A sum of a product's parts travels during two products that do not need it; a loop of them is as many runs of its body."""
    machine, network = Machine(1e9, 1e30, 0.0), Network(Link(0.0, bandwidth), {})
    shapes = tuple(fuser.ShapeDtypeStruct(s, np.float32) for s in ((128, 256), (256, 128), (128, 128)))
    of = lambda f: plan(f, shapes, (P(None, "x"), P("x"), P()), {"x": 8}, machine, network)
    own, other = 2 * 128 * 32 * 128 / 1e9, 2 * 128**3 / 1e9
    total = 2 * 7 / 8 * 4 * 128 * 128 / bandwidth
    apart = of(lambda a, b, c: (a @ b, (c @ c) @ c))
    assert apart.compute_seconds == pytest.approx(own + 2 * other)
    assert apart.collective_seconds == pytest.approx(total)
    assert apart.step_seconds == pytest.approx(own + max(total, 2 * other))
    chain = of(lambda a, b, c: (a @ b) @ c)
    assert chain.step_seconds == pytest.approx(own + total + other)
    loop = of(lambda a, b, c: fuser.lax.scan(lambda v, _: (v @ c, (a @ b) * v[0, 0]), c, None, length=5))
    assert loop.compute_seconds > 5 * other and loop.step_seconds >= loop.compute_seconds


def test_temporaries_are_what_is_needed_at_once_in_loops_too() -> None:
    """Of products one after the other two lie between steps at once; in a loop's body one does, besides the carry."""
    square, part = (fuser.ShapeDtypeStruct(s, np.float32) for s in ((512, 512), (1024, 512)))
    of = lambda f: plan(
        f, (part, square), (P("x"), P()), {"x": 4}, Machine(1e12, 1e12, 0.0), Network(LINKS["nvlink"], {})
    )
    chain = lambda a, b: fnp.tanh(fnp.tanh(fnp.tanh(fnp.tanh(a @ b) @ b) @ b) @ b)
    product = 4 * 256 * 512
    assert of(chain).temporary_bytes == 2 * product
    assert of(lambda a, b: fuser.lax.fori_loop(0, 3, lambda _, c: chain(c, b), a)).temporary_bytes >= product


def test_links_by_name_by_axis_and_from_a_file(tmp_path: pathlib.Path) -> None:
    assert read_network("nvlink").of(("data",)) == LINKS["nvlink"]
    mixed = read_network("model=nvlink,data=ethernet")
    assert mixed.of(("model",)) == LINKS["nvlink"] and mixed.of(("model", "data")) == LINKS["ethernet"]
    file = tmp_path / "links.json"
    file.write_text(
        '{"latency_seconds": 1e-5, "bytes_per_second": 2e9, "axes": {"x": {"latency_seconds": 0, "bytes_per_second": 9e9}}}'
    )
    assert (
        read_network(str(file)).of(("y",)) == Link(1e-5, 2e9)
        and read_network(str(file)).of(("x",)).bytes_per_second == 9e9
    )
    with pytest.raises(ValueError, match="neither a link"):
        read_network("string")


def test_the_command(tmp_path: pathlib.Path, capsys: Any) -> None:
    from fuser.cli import main

    file = tmp_path / "model.py"
    file.write_text(MODEL)
    arguments = ["plan", f"{file}:step", "--mesh", "data=64,model=8", "--link", "model=nvlink,data=infiniband"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mesh"] == {"data": 64, "model": 8} and 0 < found["efficiency"] < 1
    assert found["argument_bytes"] == 4 * (2 * 1024 * 4096 // 8 + 8192 * 1024 // 64)
    assert {tuple(c["axes"]) for c in found["collectives"]} == {("data",), ("model",)}
    gradients = next(c for c in found["collectives"] if c["axes"] == ["data"])
    assert gradients["count"] == 1 and gradients["sent_bytes"] >= 2 * 63 / 64 * 4 * 2 * 1024 * 4096 / 8
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("step over 512 devices (data=64, model=8), each:") and "weak scaling" in text
    file.write_text(MODEL.replace("step_specs", "other"))
    assert main(arguments) == 2
    assert "define step_specs in model.py" in capsys.readouterr().err
    assert main(["plan", f"{file}:step", "--mesh", "data"]) == 2
    assert fnp.ones(1).shape == (1,)
