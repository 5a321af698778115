"""Models of torchvision and transformers through torch.compile(backend="fuser") against eager torch: results and every gradient."""

from __future__ import annotations

import os
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import fuser.torch  # noqa: E402, F401
from bench import torch_models  # noqa: E402

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def everything(model: Any, function: Any, arguments: Any, train: bool) -> dict[str, Any]:
    """The result, with `train` the gradients of all parameters, and the buffers; the model is left as it was."""
    state = {k: v.clone() for k, v in model.state_dict().items()}
    model.zero_grad()
    found = {"result": torch_models.step(function, arguments, train)}
    found |= {f"gradient of {k}": p.grad.clone() for k, p in model.named_parameters() if p.grad is not None}
    found |= {k: b.clone() for k, b in model.named_buffers()}
    model.load_state_dict(state)
    return found


def case(name: str, train: bool, *marks: Any) -> Any:
    return pytest.param(name, train, id=f"{name}-{'training' if train else 'inference'}", marks=marks)


SLOW = pytest.mark.slow
CASES = [case(name, True) for name in torch_models.NAMES if name != "resnet18"]
CASES += [case("resnet18", True, SLOW), case("mobilenet_v3", False), case("gpt2", False)]
CASES += [case(name, False, SLOW) for name in ("resnet18", "vit_b_16", "bert", "llama")]


@pytest.mark.parametrize(("name", "train"), CASES)
def test_models_are_as_exact_as_in_eager_torch(name: str, train: bool) -> None:
    """Against eager torch in float64, errors are at most a few of those of eager torch in float32."""
    torch._dynamo.reset()
    try:
        model, arguments = torch_models.model(name, short=True)
    except ImportError as error:
        pytest.skip(str(error))
    model.train(train)
    eager = everything(model, model, arguments, train)
    found = everything(model, torch.compile(model, backend="fuser"), arguments, train)
    model.double()
    wide = tuple(a.double() if a.is_floating_point() else a for a in arguments)
    exact = everything(model, model, wide, train)
    most = max(float(v.abs().max()) for v in exact.values() if v.is_floating_point())
    for what, value in found.items():
        if what not in exact:  # of what nothing asks for, AOTAutograd gives zeros
            assert not value.any(), what
        elif value.is_floating_point():
            error, usual = ((v.double() - exact[what]).abs().max() for v in (value, eager[what]))
            scale = max(float(exact[what].abs().max()), 1e-3 * most)
            assert error <= 4 * usual + 1e-5 * scale, f"{what}: {error} where eager torch has {usual}, of {scale}"
        else:
            assert torch.equal(value, exact[what]), what
    assert found.keys() >= exact.keys()


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_models_on_a_device_drop_nothing(name: str) -> None:
    """They are compared with compilers that draw masks in another order."""
    try:
        model, arguments = torch_models.model_on("cpu", name, False, 2)
    except ImportError as error:
        pytest.skip(str(error))
    model.train()
    with torch.no_grad():
        first, second = (torch_models.first(model(*arguments)) for _ in range(2))
    assert torch.equal(first, second) and len(arguments[0]) == 4
