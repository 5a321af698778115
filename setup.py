"""The native core, and matrix products for processors that many have, as optional extensions: where they cannot be built,
fuser runs the same programs in Python, and compiles products when they are first wanted.
"""

import hashlib
import pathlib
import platform

import numpy
from setuptools import Extension, setup

folder = pathlib.Path("fuser/runtime/native")
gemm = pathlib.Path("fuser/backends/c/gemm")
parts = sorted(gemm.rglob("*.[ch]"))
digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in parts)).hexdigest()
products = [  # no modules of Python; with the flags of fuser.runtime.toolchain
    Extension(
        f"fuser.backends.c._gemm_{level}",
        sources=[str(gemm / "built" / name) for name in ("float32.c", "float64.c")],
        depends=[str(path) for path in parts],
        define_macros=[("GEMM_DIGEST", f'"{digest}"')],
        extra_compile_args=[
            "-O3",
            f"-march=x86-64-{level}",
            "-mprefer-vector-width=512",
            "-fno-math-errno",
            "-fno-trapping-math",
            "-fno-semantic-interposition",
            "-ffp-contract=off",
            "-fopenmp",
            "-std=gnu11",
            "-fwrapv",
            "-w",
        ],
        extra_link_args=["-fopenmp"],
        optional=True,
    )
    for level in ("v3", "v4")
]
built = platform.system() == "Linux" and platform.machine() == "x86_64"
setup(
    ext_modules=[
        Extension(
            "fuser.runtime._native",
            sources=sorted(str(path) for path in folder.glob("*.c")),
            depends=sorted(str(path) for path in folder.glob("*.h")),
            include_dirs=[numpy.get_include()],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
            extra_compile_args=[
                "-std=gnu11",
                "-O2",
                "-fvisibility=hidden",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-Wno-missing-field-initializers",
            ],
            libraries=["dl"],
            optional=True,
        ),
        *(products if built else []),
    ]
)
