#!/bin/sh
# The whole GPU check and benchmark in one command, within 9 minutes, without network and without installing anything:
#   sh bench/gpu.sh            results in bench/results, or in $OUT where that is set
#   DRY_RUN=1 sh bench/gpu.sh  without a GPU: each part by the driver's stand-in, in small; what it prints is no measurement
# It wants torch, triton and an NVIDIA GPU; what is missing is said in words and left out. PYTHON names the interpreter.
set -u
cd "$(dirname "$0")/.." || exit 1
PYTHON=${PYTHON:-python3}
OUT=${OUT:-bench/results}
SECONDS_FOR_CASES=${SECONDS_FOR_CASES:-80}
SECONDS_FOR_ROWS=${SECONDS_FOR_ROWS:-240}
SECONDS_FOR_TESTS=${SECONDS_FOR_TESTS:-60}
SECONDS_FOR_PAGES=${SECONDS_FOR_PAGES:-60}
SECONDS_FOR_GPUS=${SECONDS_FOR_GPUS:-60}
SECONDS_FOR_MODELS=${SECONDS_FOR_MODELS:-60}
DRY_RUN=${DRY_RUN:-}
PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
PYTHONUNBUFFERED=1
export PYTHONPATH PYTHONUNBUFFERED
mkdir -p "$OUT"
status=0
caches=$(mktemp -d)
trap 'rm -rf "$caches"' EXIT

echo "== versions"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo "nvidia-smi: not found"
"$PYTHON" - <<'END' || exit 1
import importlib.metadata, importlib.util, platform
print("Python", platform.python_version())
for name in ("torch", "triton", "numpy", "ml_dtypes", "optree", "opt_einsum", "rich", "jax", "pytest", "matplotlib"):
    found = importlib.util.find_spec(name) is not None
    print(name, importlib.metadata.version(name) if found else "not installed")
if importlib.util.find_spec("torch"):
    import torch
    print("GPU:", torch.cuda.get_device_name() if torch.cuda.is_available() else "torch sees none")
END
[ -n "$DRY_RUN" ] || "$PYTHON" -c "import sys, torch; sys.exit(not torch.cuda.is_available())" 2>/dev/null || {
    echo "torch with an NVIDIA GPU is what this script is for; neither the tests nor the benchmark can run here"
    exit 1
}
echo "== native core, which launches and makes graphs"
"$PYTHON" -c "import fuser._native" 2>/dev/null || [ -n "$DRY_RUN" ] || "$PYTHON" setup.py -q build_ext --inplace >"$OUT/build.txt" 2>&1
"$PYTHON" -c "from fuser.runtime.core import native, reason; print('built' if native else reason)" || status=1
"$PYTHON" -c "import fuser" || {
    echo "fuser does not import; a package that it needs and that cannot be installed here may be unpacked into a folder"
    echo "named in PYTHONPATH. The peers are measured without it."
    status=1
}

echo "== every case of the backend by several processes, a line of JSON each, at once, in $OUT/cases.jsonl; others compile what is timed then"
rm -f "$OUT/cases.jsonl" "$OUT/gpu.jsonl"
TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$caches/inductor}
JAX_COMPILATION_CACHE_DIR=${JAX_COMPILATION_CACHE_DIR:-$caches/jax}
JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
XLA_PYTHON_CLIENT_PREALLOCATE=false
TORCHINDUCTOR_COMPILE_THREADS=1
export TORCHINDUCTOR_CACHE_DIR JAX_COMPILATION_CACHE_DIR JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS XLA_PYTHON_CLIENT_PREALLOCATE TORCHINDUCTOR_COMPILE_THREADS
if [ -z "$DRY_RUN" ] && [ "$SECONDS_FOR_CASES" != 0 ]; then
    # shellcheck disable=SC2086
    "$PYTHON" -m bench.gpu ${PARTS:-} --warm --warming $((SECONDS_FOR_CASES + 20)) &
    # shellcheck disable=SC2086
    JAX_PLATFORMS=cpu timeout $((SECONDS_FOR_CASES + 60)) "$PYTHON" -m tests.gpu.every_case ${SUITES:-} --processes 12 --seconds "$SECONDS_FOR_CASES" --rows "$OUT/cases.jsonl" || status=1
    wait
fi

echo "== models under torch.compile, beside eager torch and inductor: a line of JSON each, at once, in $OUT/torch.jsonl"
rm -f "$OUT/torch.jsonl"
if [ -n "$DRY_RUN" ]; then
    echo "left out: torch's own operations between the programs need a GPU; tests/interop/dynamo/test_on_a_gpu.py has the stand-in's part"
elif [ "$SECONDS_FOR_MODELS" = 0 ]; then
    echo "left out"
elif "$PYTHON" -c "import torchvision, transformers" 2>/dev/null; then
    # shellcheck disable=SC2086
    "$PYTHON" -m bench.torch_suite ${MODELS:-bert resnet18 gpt2} --device cuda --mode training --budget "$SECONDS_FOR_MODELS" --rounds 5 --rows "$OUT/torch.jsonl" --json - || status=1
else
    echo "left out: the models are torchvision's and transformers', of which one is missing"
fi

echo "== calls, updates in place, kernels, products, what is irregular, programs beside JAX and torch.compile: a line of JSON each, at once, in $OUT/gpu.jsonl"
# shellcheck disable=SC2086
timeout $((SECONDS_FOR_ROWS + 60)) "$PYTHON" -m bench.gpu ${PARTS:-} --budget "$SECONDS_FOR_ROWS" --rows "$OUT/gpu.jsonl" ${DRY_RUN:+--dry-run} || status=1

echo "== programs over several GPUs, where there are some: a line of JSON each, in $OUT/gpus.jsonl"
rm -f "$OUT/gpus.jsonl"
timeout $((SECONDS_FOR_GPUS + 60)) "$PYTHON" -m bench.gpus --budget "$SECONDS_FOR_GPUS" --rows "$OUT/gpus.jsonl" ${DRY_RUN:+--dry-run} || status=1

echo "== tests on the GPU, but for the cases above and the programs that were timed"
if [ "$SECONDS_FOR_TESTS" = 0 ]; then
    echo "left out"
elif "$PYTHON" -c "import pytest" 2>/dev/null; then
    # the project's addopts name a plugin (xdist) that may be missing here
    workers=
    "$PYTHON" -c "import xdist" 2>/dev/null && workers="-n 6"
    [ -n "$DRY_RUN" ] && workers=--collect-only
    # shellcheck disable=SC2086
    JAX_PLATFORMS=cpu timeout "$SECONDS_FOR_TESTS" "$PYTHON" -m pytest -o addopts= -q -rf -m gpu -k "not every_case and not real_sizes" $workers tests/gpu tests/interop/test_torch.py tests/runtime/test_device.py
    result=$?
    case $result in
        0) ;;
        5) echo "no test is marked gpu" ;;
        124) echo "the tests were stopped after $SECONDS_FOR_TESTS s"; status=1 ;;
        *) echo "pytest ended with $result"; status=1 ;;
    esac
else
    echo "pytest is not installed: the tests marked gpu are left out; the benchmark checks every result against float64"
fi

echo "== README, docs and examples on the default device, a line of JSON each, at once, in $OUT/pages.jsonl"
if [ "$SECONDS_FOR_PAGES" = 0 ]; then
    echo "left out"
else
    rm -f "$OUT/pages.jsonl"
    only= limit=$SECONDS_FOR_PAGES
    [ -n "$DRY_RUN" ] && only="--stand-in docs/errors.md" limit=200
    # shellcheck disable=SC2086
    JAX_PLATFORMS=cpu timeout "$limit" "$PYTHON" -m tests.gpu.pages $only --processes 6 --seconds $((limit * 3 / 4)) --rows "$OUT/pages.jsonl" || status=1
fi
exit $status
