"""What `bench/gpu.sh` compiles on a GPU, compiled before on a machine without one, so that minutes with a GPU go into running kernels.

    python -m bench.gpu_ahead record kernels.pickle    what all cases and benchmarks compile, by the driver's stand-in; nothing runs
    python -m bench.gpu_ahead compile kernels.pickle   with the GPU's versions of Python and Triton: into $TRITON_CACHE_DIR and $FUSER_CACHE_DIR
    tar cJf kernels.tar.xz $TRITON_CACHE_DIR $FUSER_CACHE_DIR

Triton's cache holds its own absolute paths: it must lie at the same path where the GPU is. Of each kernel the code and its description are kept,
a twentieth of what Triton leaves.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

from fuser import config
from fuser.backends.triton.device.compilation import Job, work

KEPT = (".json", ".cubin")


def record(target: int) -> list[Job]:
    """The kernels of every case of the backend, of every part of the benchmark, and of its variants, each once."""
    from bench import gpu, gpu_variants
    from fuser.backends.triton.device import code
    from tests import cuda_stand_in
    from tests.backends.product_cases import SCHEDULES
    from tests.gpu import every_case

    found: dict[str, Job] = {}
    loaded = code._loaded

    def noted(source: Any, number: int, passing: code.Passing) -> Any:
        job = Job(source, number, "cuda", target, passing.values, passing.loose)
        found.setdefault(job.key, job)
        return loaded(source, number, passing)

    def unjudged(*_: Any, **__: Any) -> dict[str, Any]:
        return {}

    with cuda_stand_in.opened() as device, contextlib.ExitStack() as stack:
        device.switch.execute.value = device.switch.checking.value = 0
        code._loaded = noted
        stack.callback(setattr, code, "_loaded", loaded)
        for name, other in (("_judged", unjudged), ("_peer", unjudged), ("_wait", lambda result: None)):
            stack.callback(setattr, gpu, name, getattr(gpu, name))
            setattr(gpu, name, other)
        run = gpu.Run(dry=False, first=True)
        for function, _ in gpu.PARTS.values():
            for _, case in function(run):
                with contextlib.suppress(Exception):  # peers, which want a GPU and come last
                    case()
        for call in gpu_variants.first_calls(run):
            call()
        with config.using(backend="triton", enable_x64=True):
            for suite, (name, function, arrays) in every_case.cases(every_case.SUITES):
                every_case.first_call(suite, function, arrays, SCHEDULES.get(name))
    return list(found.values())


def compiled(jobs: list[Job], processes: int) -> int:
    """Compile these, by so many processes; the number that are new."""
    from fuser.runtime.cache import default_cache

    missing = [job for job in jobs if default_cache().get(job.key) is None]
    settings = {"cache_dir": config.cache_dir, "override": config.override}
    pieces = [pickle.dumps((settings, missing[n : n + 8])) for n in range(0, len(missing), 8)]
    with multiprocessing.Pool(processes) as pool:
        for _ in pool.imap_unordered(work, pieces):
            pass
    return len(missing)


def strip(folder: Path) -> None:
    """Remove what the driver does not load from a cache of Triton's."""
    for path in folder.glob("*/*"):
        if path.suffix not in KEPT:
            path.unlink()


def main(arguments: list[str] | None = None) -> int:
    """Record or compile; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_ahead", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("step", choices=("record", "compile"))
    parser.add_argument("jobs", type=Path)
    parser.add_argument("--target", type=int, default=90, help="the GPU's compute capability, times 10")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    if options.step == "record":
        jobs = record(options.target)
        options.jobs.write_bytes(pickle.dumps(jobs))
        print(f"{len(jobs)} kernels")
        return 0
    cache = os.environ.get("TRITON_CACHE_DIR")
    if cache is None:
        parser.error("compile wants TRITON_CACHE_DIR, the path at which the cache will lie where the GPU is")
    jobs = pickle.loads(options.jobs.read_bytes())
    print(f"{compiled(jobs, options.processes)} of {len(jobs)} kernels are new")
    strip(Path(cache))
    return 0


if __name__ == "__main__":
    sys.exit(main())
