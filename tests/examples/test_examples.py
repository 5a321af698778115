"""Each example runs as a script at a reduced size: it compares its results with NumPy's itself, and says what it did."""

from __future__ import annotations

import importlib.util
import pathlib
import re
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    """The example as a module; skipped where the library that ships its data is missing."""
    source = (EXAMPLES / f"{name}.py").read_text()
    for library in ("skimage", "sklearn"):
        if f"from {library}" in source:
            pytest.importorskip(library)
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_image_pipeline(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    from skimage import io

    path = tmp_path / "before_after.png"
    module = load("image_pipeline")
    assert module.main(["--size", "96", "--rounds", "1", "--save", str(path)]) <= 1
    printed = capsys.readouterr().out
    assert re.search(
        r"96 x 96 pixels: NumPy [\d.]+ ms, accelerated [\d.]+ ms\n[\d.]+ times as fast, in \d+ kernels", printed
    )
    picture = io.imread(path)
    assert picture.shape == (96, 192, 3) and picture.dtype == np.uint8
    before, after = picture[:, :96].astype(float), picture[:, 96:].astype(float)
    assert after.mean() > before.mean()  # exposed brighter
    assert np.abs(before - module.photograph(96)).max() == 0


def test_denoising_removes_noise_and_keeps_edges() -> None:
    denoise = load("image_pipeline").denoise
    clean = np.zeros((1, 40, 40), np.float32)
    clean[:, :, 20:] = 1
    noisy = clean + np.random.default_rng(0).normal(scale=0.03, size=clean.shape).astype(np.float32)
    found = denoise(noisy)
    assert np.abs(found - clean)[:, 2:-2, 2:-2].std() < 0.5 * np.abs(noisy - clean)[:, 2:-2, 2:-2].std()
    assert (found[:, :, 20] - found[:, :, 19]).min() > 0.8


def test_black_scholes(capsys: pytest.CaptureFixture[str]) -> None:
    module = load("black_scholes")
    assert module.main(["--size", "10000", "--rounds", "1"]) < 1e-9
    printed = capsys.readouterr().out
    assert re.search(
        r"10,000 options: NumPy [\d.]+ ms, accelerated [\d.]+ ms\n[\d.]+ times as fast, in 1 kernel;", printed
    )
    # Hull, "Options, Futures and Other Derivatives": S=42, K=40, r=10 %, sigma=20 %, T=0.5 gives 4.76 and 0.81.
    known = module.black_scholes(np.array([42.0]), np.array([40.0]), np.array([0.5]), 0.1, np.array([0.2]))
    np.testing.assert_allclose([known["call"][0], known["put"][0]], [4.76, 0.81], atol=0.005)


def test_kmeans_digits(capsys: pytest.CaptureFixture[str]) -> None:
    assert load("kmeans_digits").main(["--size", "500", "--rounds", "8"]) > 0.6
    assert re.search(
        r"500 digits, 10 clusters, 8 steps: NumPy [\d.]+ ms, accelerated [\d.]+ ms", capsys.readouterr().out
    )
