"""The native core as an optional extension: where it cannot be built, fuser runs the same programs in Python."""

import pathlib

import numpy
from setuptools import Extension, setup

folder = pathlib.Path("fuser/runtime/native")
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
        )
    ]
)
