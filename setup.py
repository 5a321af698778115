"""The native core, and library kernels for processors that many have, as optional extensions: where they cannot be built,
fuser runs the same programs in Python, and compiles kernels when they are first wanted. The C sources lie in `runtime/`.
"""

import copy
import hashlib
import os
import pathlib
import platform
import runpy

import numpy
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext


class BuildAtOnce(build_ext):
    """Builds all extensions at once, each with objects of its own: two are made of the same sources."""

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or True

    def build_extension(self, ext):
        apart = copy.copy(self)
        apart.build_temp = os.path.join(self.build_temp, ext.name)
        build_ext.build_extension(apart, ext)


core, kernels = pathlib.Path("runtime/core"), pathlib.Path("runtime/kernels")
team = kernels / "team"
compiler = runpy.run_path("fuser/runtime/flags.py")
parts = sorted(kernels.rglob("*.[ch]"))
digest = hashlib.sha256(b"\0".join([*(path.read_bytes() for path in parts), " ".join(compiler["flags"]("")).encode()]))
prebuilt = [  # no modules of Python
    Extension(
        f"fuser._prebuilt_{level}",
        sources=[*sorted(str(path) for path in (kernels / "prebuilt").glob("*.c")), str(team / "openmp.c")],
        depends=[str(path) for path in parts],
        define_macros=[("PREBUILT_DIGEST", f'"{digest.hexdigest()}"'), ("FUSER_TEAM", None)],
        # Python's own flags ask for what debuggers read, which takes a quarter of the time and most of the file.
        extra_compile_args=[*(flag for flag in compiler["flags"](f"x86-64-{level}") if flag != "-shared"), "-g0"],
        extra_link_args=["-Wl,--as-needed", *compiler["OPENMP"]],
        optional=True,
    )
    for level in ("v3", "v4")
]
folders = [path.relative_to(kernels).parts for path in sorted(kernels.rglob("*")) if path.is_dir()]
data = ["fuser._kernels", *(".".join(["fuser._kernels", *parts]) for parts in folders)]
built = platform.system() == "Linux" and platform.machine() == "x86_64"
setup(
    cmdclass={"build_ext": BuildAtOnce},
    packages=[*find_packages(include=["fuser*"]), *data],
    package_dir={"fuser._kernels": str(kernels)},
    ext_modules=[
        Extension(
            "fuser._native",
            sources=[*sorted(str(path) for path in core.glob("*.c")), str(team / "pool.c")],
            depends=[*sorted(str(path) for path in core.glob("*.h")), str(team / "team.h")],
            include_dirs=[numpy.get_include(), "fuser/ffi/include"],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
            extra_compile_args=[
                "-std=gnu11",
                "-O2",
                "-ffp-contract=off",
                "-fvisibility=hidden",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-Wno-missing-field-initializers",
            ],
            libraries=["dl"],
            optional=True,
        ),
        *(prebuilt if built else []),
    ],
)
