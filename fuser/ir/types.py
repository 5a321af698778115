"""Array types: shape, dtype and weakness; what tracing knows of a value before it exists.

`ArrayType` plays the part of a jaxpr's aval. Dtypes are NumPy's, with ml_dtypes' for bfloat16 and float8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e4m3fn = np.dtype(ml_dtypes.float8_e4m3fn)
float8_e5m2 = np.dtype(ml_dtypes.float8_e5m2)
float8_e4m3b11fnuz = np.dtype(ml_dtypes.float8_e4m3b11fnuz)
float8_e4m3fnuz = np.dtype(ml_dtypes.float8_e4m3fnuz)
float8_e5m2fnuz = np.dtype(ml_dtypes.float8_e5m2fnuz)
float8_e3m4 = np.dtype(ml_dtypes.float8_e3m4)
float8_e4m3 = np.dtype(ml_dtypes.float8_e4m3)
float8_e8m0fnu = np.dtype(ml_dtypes.float8_e8m0fnu)

# The dtype of tangents of integers and bools, as in JAX: no bytes, since nothing can be in them.
float0 = np.dtype([("float0", np.void, 0)])

FLOAT8 = (
    *(float8_e4m3fn, float8_e5m2, float8_e4m3b11fnuz, float8_e4m3fnuz, float8_e5m2fnuz),
    *(float8_e3m4, float8_e4m3, float8_e8m0fnu),
)
# Dtypes with elements narrower than the byte that NumPy gives each.
FLOAT4_6 = tuple(np.dtype(getattr(ml_dtypes, f"float{name}")) for name in ("4_e2m1fn", "6_e2m3fn", "6_e3m2fn"))
INT1_4 = tuple(np.dtype(getattr(ml_dtypes, f"int{bits}")) for bits in (1, 2, 4))
UINT1_4 = tuple(np.dtype(getattr(ml_dtypes, f"uint{bits}")) for bits in (1, 2, 4))
# What no kernel computes with: ml_dtypes converts them, and arithmetic is of float32, int8 or uint8, rounded or wrapped.
SMALL_FLOATS = FLOAT8 + FLOAT4_6
SMALL_INTEGERS = INT1_4 + UINT1_4
SMALL = SMALL_FLOATS + SMALL_INTEGERS
_BITS = {d: ml_dtypes.finfo(d).bits for d in FLOAT4_6} | {d: ml_dtypes.iinfo(d).bits for d in SMALL_INTEGERS}
FLOATS = (np.dtype("float16"), bfloat16, np.dtype("float32"), np.dtype("float64"))
HALVES = (FLOATS[0], bfloat16)
COMPLEX = (np.dtype("complex64"), np.dtype("complex128"))
SIGNED = tuple(np.dtype(f"int{bits}") for bits in (8, 16, 32, 64))
UNSIGNED = tuple(np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64))
INTEGERS = SIGNED + UNSIGNED
BOOL = np.dtype("bool")
ALL_DTYPES = (BOOL, *INTEGERS, *FLOATS, *COMPLEX, *SMALL)
# A key of random numbers, one element of an array of keys: the words of a generator, which the field's name tells apart. It
# is no number. Kernels know those of Threefry.
KEY = np.dtype([("fry", np.uint32, (2,))])
KEYS = [KEY]

_SHORT = {
    BOOL: "bool",
    bfloat16: "bf16",
    **{d: "i" + d.name[3:] for d in SIGNED},
    **{d: "u" + d.name[4:] for d in UNSIGNED},
    **{np.dtype(f"float{bits}"): f"f{bits}" for bits in (16, 32, 64)},
    **{d: "f" + d.name.removeprefix("float") for d in SMALL_FLOATS},
    **{d: d.name.replace("int", "i" if d in INT1_4 else "") for d in SMALL_INTEGERS},
    np.dtype("complex64"): "c64",
    np.dtype("complex128"): "c128",
    KEY: "key<fry>",
}
DTYPES = {name: dtype for dtype, name in _SHORT.items()}  # by their short names


# One letter a dtype, as NumPy's `kind`, which is "V" for those of ml_dtypes.
_KINDS = {
    **dict.fromkeys((bfloat16, *SMALL_FLOATS), "f"),
    **dict.fromkeys(INT1_4, "i"),
    **dict.fromkeys(UINT1_4, "u"),
}


def kind_of(dtype: np.dtype) -> str:
    """The dtype's kind: b, i, u, f, c, or V for keys and float0."""
    return _KINDS.get(dtype) or dtype.kind


def bits_of(dtype: np.dtype) -> int:
    """The bits that an element has a meaning in: 4 of int4, which lies in a byte."""
    return _BITS.get(dtype) or dtype.itemsize * 8


def key_dtype(tag: str, words: tuple[int, ...]) -> np.dtype:
    """The dtype of the keys of a generator: `words` of uint32; the tag stands in `key<tag>`."""
    found = np.dtype([(tag, np.uint32, words)])
    if found not in KEYS:
        KEYS.append(found)
        _SHORT[found] = f"key<{tag}>"
        DTYPES[f"key<{tag}>"] = found
    return found


def is_key(dtype: np.dtype) -> bool:
    """Whether the dtype is one of random keys."""
    return dtype.names is not None and dtype in KEYS


def short_dtype(dtype: np.dtype) -> str:
    """The dtype's name in graphs and errors: f32, bf16, i8, u32, bool, c64."""
    return _SHORT.get(dtype) or dtype.name


def is_float(dtype: np.dtype) -> bool:
    """Whether the dtype is a real floating-point type, the small ones included."""
    return kind_of(dtype) == "f"


def sum_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which sums with results of this dtype are taken: those of half precision in float32."""
    return FLOATS[2] if dtype in (FLOATS[0], bfloat16) else dtype


def is_inexact(dtype: np.dtype) -> bool:
    """Whether the dtype is a floating-point or complex type."""
    return kind_of(dtype) in "fc"


def is_integer(dtype: np.dtype) -> bool:
    """Whether the dtype is a signed or unsigned integer."""
    return kind_of(dtype) in "iu"


def is_complex(dtype: np.dtype) -> bool:
    """Whether the dtype is complex."""
    return dtype.kind == "c"


class ManualAxisType(NamedTuple):
    """What a type says along the axes of a mesh that a program divides by hand, as JAX's `aval.mat`."""

    varying: frozenset[Any]  # the values differ from device to device
    unreduced: frozenset[Any]  # each device has one term of the sum that the value is
    reduced: frozenset[Any]  # the values are the same, and their cotangents sums

    def invarying(self, mesh: Any) -> frozenset[Any]:
        """The manual axes of the mesh of which the type says nothing: the values, and their cotangents, are the same."""
        return frozenset(mesh.manual_axes) - self.varying - self.unreduced - self.reduced


class Typed:
    """What has a type, `aval`, and answers for it: `shape`, `dtype`, `ndim`, `size`."""

    __slots__ = ()
    aval: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> Any:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.aval.size  # type: ignore[no-any-return]


def _listed(axes: Any) -> str:
    """One name, or several in brackets."""
    names = list(map(str, axes)) if isinstance(axes, (tuple, list)) else [str(axes)]
    return names[0] if len(names) == 1 else f"({','.join(names)})"


layout_rule: list[Any] = []  # what says `ArrayType.sharding`; set by fuser.parallel


@dataclass(frozen=True, slots=True)
class ArrayType:
    """The type of an array: `shape` in elements, outermost first; `dtype`; `weak_type` when it came from a Python scalar.

    `vma` are the manual mesh axes along which the values differ from device to device ("varying manual axes"), where a
    `shard_map` keeps track of them. `explicit` says how the value lies along the Explicit axes of a mesh: a NamedSharding
    over an AbstractMesh, with an entry for each dimension; None where types say nothing of that.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    weak_type: bool = False
    vma: frozenset[Any] = frozenset()
    explicit: Any = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of memory of a dense array of this type."""
        return math.prod(self.shape) * self.dtype.itemsize

    def update(
        self,
        shape: tuple[int, ...] | None = None,
        dtype: np.dtype | None = None,
        weak_type: bool | None = None,
        vma: frozenset[Any] | None = None,
        explicit: Any = None,
        sharding: Any = None,
    ) -> ArrayType:
        """This type with some fields replaced; with another shape, `explicit` is to be said anew."""
        if sharding is not None:  # JAX's name, for one of any mesh
            explicit = sharding.in_type(len(self.shape if shape is None else shape))
        return ArrayType(
            self.shape if shape is None else shape,
            self.dtype if dtype is None else dtype,
            self.weak_type if weak_type is None else weak_type,
            self.vma if vma is None else vma,
            self.explicit if explicit is None and shape is None else explicit,
        )

    @property
    def mat(self) -> ManualAxisType:
        """What the type says along manual axes."""
        spec = None if self.explicit is None else self.explicit.spec
        sets = (frozenset[Any](), frozenset[Any]()) if spec is None else (spec.unreduced, spec.reduced)
        return ManualAxisType(self.vma, *sets)

    manual_axis_type = mat

    @property
    def sharding(self) -> Any:
        """How values of this type lie, as far as types say it: a NamedSharding over an AbstractMesh."""
        return layout_rule[0](self)

    def without(self, dim: int) -> ArrayType:
        """The type of what stands along a dimension."""
        explicit = None if self.explicit is None else self.explicit.without(dim)
        return self.update(shape=(*self.shape[:dim], *self.shape[dim + 1 :]), explicit=explicit)

    def along(self, dim: int, size: int) -> ArrayType:
        """The type of so many values along a new dimension; how that one lies is free."""
        explicit = None if self.explicit is None else self.explicit.batched(dim)
        return self.update(shape=(*self.shape[:dim], size, *self.shape[dim:]), explicit=explicit)

    def to_tangent_aval(self) -> ArrayType:
        """The type of tangents: float0 for integers and bools."""
        return self.update(dtype=self.dtype if is_inexact(self.dtype) else float0)

    at_least_vspace = to_tangent_aval

    def plain(self) -> str:
        """Shape and dtype as graphs write them: `f32[3,4]`, with a star behind a weak type's dtype."""
        star = "*" if self.weak_type else ""
        return f"{short_dtype(self.dtype)}{star}[{','.join(map(str, self.shape))}]"

    def str_short(self) -> str:
        """As `plain`, and what the type says of devices, as JAX writes it: `f32[3@x,4]{V:y}`."""
        if self.explicit is None and not self.vma:
            return self.plain()
        partitions = self.explicit.spec.partitions if self.explicit is not None else (None,) * len(self.shape)
        split = [str(n) if p is None else f"{n}@{_listed(p)}" for n, p in zip(self.shape, partitions)]
        said = [f"{letter}:{_listed(sorted(axes, key=str))}" for letter, axes in zip("VUR", self.mat) if axes]
        head, rest = self.plain().split("[")[0], f"{{{', '.join(said)}}}" if said else ""
        return f"{head}[{','.join(split)}]{rest}"

    def str_long(self) -> str:
        """As JAX names types in messages: `float32[3,4]`."""
        return f"{short_dtype(self.dtype) if self.dtype.names else self.dtype.name}[{','.join(map(str, self.shape))}]"

    __str__ = str_short
