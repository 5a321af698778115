"""Models of torchvision and transformers with random weights, and an input of each: what `--suite torch` and the tests compile.

`short` models have few layers of each kind and no dropout, for tests. Nothing is downloaded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

NAMES = ("resnet18", "mobilenet_v3", "vit_b_16", "bert", "gpt2", "llama")
# The operators of torchvision's C library, which is absent where it was installed without one that fits torch: importing
# torchvision describes their results, and needs their names for it.
_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)",
    "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio) -> (Tensor, Tensor)",
    "ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, "
    "SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
)
_DROPS = ("p", "dropout", "dropout_prob", "attention_dropout")  # of torch's modules, and attention in transformers
_kept: list[Any] = []  # a library's operators go with it


def _torchvision() -> Any:
    try:
        import torchvision.models as found
    except RuntimeError:  # of an operator that does not exist
        import sys

        for name in [n for n in sys.modules if n.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        _kept.append(library)
        for schema in _OPERATORS:
            library.define(schema)
        import torchvision.models as found
    return found


def _images(side: int) -> tuple[Any, ...]:
    return (torch.randn(2, 3, side, side),)


def _words() -> tuple[Any, ...]:
    return (torch.randint(0, 100, (2, 20)),)


def _resnet(short: bool) -> tuple[Any, tuple[Any, ...]]:
    models = _torchvision()
    if short:
        return models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5), _images(32)
    return models.resnet18(num_classes=10), _images(64)


def _mobilenet(short: bool) -> tuple[Any, tuple[Any, ...]]:
    models = _torchvision()
    if not short:
        return models.mobilenet_v3_small(num_classes=10), _images(64)
    settings = [
        models.mobilenetv3.InvertedResidualConfig(16, 3, 16, 16, True, "RE", 2, 1, 1),
        models.mobilenetv3.InvertedResidualConfig(16, 5, 32, 16, True, "HS", 1, 1, 1),
    ]
    return models.MobileNetV3(settings, 32, num_classes=5, dropout=0.0), _images(16)


def _vit(short: bool) -> tuple[Any, tuple[Any, ...]]:
    models = _torchvision()
    if short:
        model = models.VisionTransformer(16, 4, 1, 4, 32, 64, num_classes=5, dropout=0.0)
    else:
        model = models.VisionTransformer(64, 16, 12, 12, 768, 3072, num_classes=10)
    # The head begins with zeros, and with it all results and gradients.
    torch.nn.init.normal_(model.heads.head.weight, std=0.02)
    return model, _images(16 if short else 64)


def _sizes(short: bool) -> dict[str, int]:
    layers, width = (1, 32) if short else (4, 128)
    return {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 4, "vocab_size": 100}


def _bert(short: bool) -> tuple[Any, tuple[Any, ...]]:
    from transformers import BertConfig, BertModel

    sizes, dropout = _sizes(short), 0.0 if short else 0.1
    return BertModel(
        BertConfig(
            **sizes,
            intermediate_size=2 * sizes["hidden_size"],
            max_position_embeddings=64,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )
    ), _words()


def _gpt2(short: bool) -> tuple[Any, tuple[Any, ...]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes, dropout = _sizes(short), 0.0 if short else 0.1
    width, layers = sizes["hidden_size"], sizes["num_hidden_layers"]
    drops = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
    return GPT2LMHeadModel(
        GPT2Config(n_embd=width, n_layer=layers, n_head=4, vocab_size=100, n_positions=64, use_cache=False, **drops)
    ), _words()


def _llama(short: bool) -> tuple[Any, tuple[Any, ...]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = _sizes(short)
    more = {
        "intermediate_size": 2 * sizes["hidden_size"],
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "use_cache": False,
    }
    return LlamaForCausalLM(LlamaConfig(**sizes, **more)), _words()


_MAKERS: dict[str, Callable[[bool], tuple[Any, tuple[Any, ...]]]] = dict(
    zip(NAMES, (_resnet, _mobilenet, _vit, _bert, _gpt2, _llama))
)


def model(name: str, short: bool = False) -> tuple[Any, tuple[Any, ...]]:
    """A model with weights from torch's seed 0, and arguments; ImportError where its library is missing."""
    with contextlib.suppress(ImportError):
        _torchvision()  # which transformers imports as well
    torch.manual_seed(0)
    return _MAKERS[name](short)


def model_on(device: str, name: str, short: bool, copies: int) -> tuple[Any, tuple[Any, ...]]:
    """The same on a device, with `copies` times as many rows, and without dropout, whose masks compilers draw in orders of their own."""
    made, arguments = model(name, short)
    for part in made.modules():
        drops = [key for key, value in vars(part).items() if type(value) is float and key in _DROPS]
        for key in drops:
            setattr(part, key, 0.0)
    return made.to(device), tuple(torch.cat([x] * copies).to(device) for x in arguments)


def first(result: Any) -> Any:
    """The tensor that a model's result begins with."""
    if isinstance(result, torch.Tensor):
        return result
    return result[0] if isinstance(result, tuple) else next(iter(result.values()))


def step(function: Callable[..., Any], arguments: tuple[Any, ...], train: bool) -> Any:
    """The function's first tensor; with `train`, the gradients of its mean square are added to the parameters."""
    if not train:
        with torch.no_grad():
            return first(function(*arguments))
    found = first(function(*arguments))
    found.square().mean().backward()
    return found.detach()
