"""Primitives: a name, a fusion class and the rules; and the registry of all of them.

A rule is a function over data (array types, NumPy arrays, scalars or index maps); `fuser/ops` puts each primitive and
all of its rules in one place. What the rules of a fusion class look like is said at `Fusion`.
"""

from __future__ import annotations

import enum
import pickle
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fuser.errors import MissingRuleError


class Fusion(enum.Enum):
    """How a primitive takes part in kernels, and so what its `lower` rule takes and gives.

    ELEMENTWISE  `lower(*operands: Scalar, **params) -> Scalar`; all operands have the output's shape
    MOVEMENT     `lower(read, index, *avals, **params) -> Scalar`: the element at `index` (one Affine a dimension) of the
                 output, through `read(operand_number, index, mask=None) -> Scalar`
    REDUCE       `lower(**params) -> (reduction, axes)`: the reduction's name in `REDUCTIONS`, and the operand's reduced dimensions
    SCAN         `lower(**params) -> (reduction, axis, reverse)`
    DOT          a contraction; `params["dimension_numbers"]` as in JAX
    LIBRARY      runs as one library call
    CONTROL      holds graphs in its params
    """

    ELEMENTWISE = "elementwise"
    MOVEMENT = "movement"
    REDUCE = "reduce"
    SCAN = "scan"
    DOT = "dot"
    LIBRARY = "library"
    CONTROL = "control"


class Movement(enum.Enum):
    """What a MOVEMENT primitive does with its operands, so that stages ask for that and not for a name.

    The first five have one operand and are index arithmetic alone. JOIN puts its operands side by side, PAD its
    first one between copies of the second. SLICE reads a part of its first operand, and UPDATE writes its second operand
    into the first, at the index that the operands after them say; GATHER reads at many such indices. MAKE has no operand.
    """

    MOVE = "move"  # the operand's elements in another shape or order, or some of them
    SPREAD = "spread"  # the operand's elements again and again along further dimensions
    WINDOWS = "windows"  # each window of the operand, which overlap
    BARRIER = "barrier"  # the operand, at another time
    DERIVE = "derive"  # random keys computed from the operand's
    JOIN = "join"
    PAD = "pad"
    SLICE = "slice"
    UPDATE = "update"
    GATHER = "gather"
    MAKE = "make"


MOVES = (Movement.MOVE, Movement.SPREAD)  # of one number they make that number
VIEWS = (*MOVES, Movement.WINDOWS, Movement.BARRIER, Movement.DERIVE)


class Control(enum.Enum):
    """Which form of control flow a CONTROL primitive is, once calls are inlined."""

    SCAN = "scan"
    WHILE = "while"
    COND = "cond"


# The reductions that a kernel can run; argmax and argmin carry a position beside the value.
REDUCTIONS = ("sum", "prod", "max", "min", "and", "or", "xor", "argmax", "argmin", "logaddexp")

REGISTRY: dict[str, Primitive] = {}


# Rules by the words in which users of JAX search for them.
_RULES = {"jvp": "Differentiation", "transpose": "Transpose", "batch": "Batching"}


@dataclass(eq=False)
class Primitive:
    """An operation that graphs are made of.

    `movement` and `control` say more of primitives of those fusion classes.
    `type(*avals, **params)` gives the output's ArrayType (a tuple of them with `multiple_results`); `eval(*arrays,
    **params)` computes it in NumPy and is the reference, `planned(*avals, **params)` gives what `eval` does with
    dense arrays of these types, decided beforehand, or None; `lower` depends on the fusion class; `samples()` yields
    `(arrays, params)` that the registry test tries every rule on. The rules of the transforms:

    jvp        a tuple with one `f(tangent, *operands, out, **params) -> tangent of out` an operand (None: no derivative),
               or a function `(primals, tangents, **params) -> (out, tangent)`; tangents may be `Zero`
    transpose  `(ct, *operands, **params)` gives a cotangent (or None) an operand; those that are linear come as `Undefined`
    batch      `(operands, dims, **params) -> (out, dim)`; a dim is None for what is not batched
    collect    `(operands, dims, size, **params) -> (out, dim)` of a collective over the axis that is batched
    expand     `(*operands, **params) -> out`: the same by other primitives, for backends without a form of their own
    inline     as `expand`, but compiled programs know nothing else: the first pass puts it there

    One with an `effect` does more than compute its results: it happens once, in the order of the program, needed or not.

    `varying(axes, **params)` gives the mesh axes along which a result differs from device to device, from those of the
    operands, None where the type rule says it; by default they are the same. `sends(p)` of a collective gives the bytes
    that each of p devices sends for a byte of its operand, in so many `rounds`.

    `discharge(*cells and operands, **params) -> results` of a primitive that takes Refs is the same by pure primitives: a cell
    stands for each Ref, whose `value` can be read and set. No other primitive takes Refs.

    A primitive that holds functions or graphs may also say how it is evaluated on Arrays (`run`), recorded
    (`stage(trace, args, params)`), and split into what is known and what is linear (`partial(trace, args, params)`). With
    `calls` its params hold functions, which may close over tracers: its batch rule is always asked, and given `trace`.
    """

    name: str
    fusion: Fusion = Fusion.LIBRARY
    movement: Movement | None = None
    control: Control | None = None
    linear: bool = False
    multiple_results: bool = False
    calls: bool = False
    effect: bool = False
    type: Callable[..., Any] | None = None
    eval: Callable[..., Any] | None = None
    planned: Callable[..., Callable[..., Any] | None] | None = None
    lower: Callable[..., Any] | None = None
    jvp: Any = None
    transpose: Callable[..., Any] | None = None
    batch: Callable[..., Any] | None = None
    collect: Callable[..., Any] | None = None
    expand: Callable[..., Any] | None = None
    inline: Callable[..., Any] | None = None
    varying: Callable[..., frozenset[Any] | None] | None = None
    discharge: Callable[..., Any] | None = None
    sends: Callable[[int], float] | None = None
    rounds: int = 1
    run: Callable[..., Any] | None = None
    stage: Callable[..., Any] | None = None
    partial: Callable[..., Any] | None = None
    samples: Callable[[], Iterable[tuple[tuple[Any, ...], dict[str, Any]]]] | None = None
    file: str = field(default="", repr=False)

    def rule(self, kind: str) -> Callable[..., Any]:
        """The rule `kind`, or an error that says which primitive lacks it and where it belongs."""
        found = getattr(self, kind)
        if found is None:
            known = f"{_RULES[kind]} rule for {self.name!r} not implemented: " if kind in _RULES else ""
            raise MissingRuleError(
                f"{known}primitive {self.name!r} has no {kind} rule; it belongs in {self.file or 'the file that defines it'}"
            )
        return found  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def __reduce__(self) -> Any:
        """In pickles a registered primitive is its name."""
        if REGISTRY.get(self.name) is not self:
            raise pickle.PicklingError(f"{self.name} is a primitive of a library, which pickles cannot name")
        return registered, (self.name,)

    # Set by fuser.trace, which stands above: how a primitive is applied under the current Trace.
    binder: ClassVar[Callable[..., Any]]

    def bind(self, *args: Any, **params: Any) -> Any:
        """The primitive applied to arrays or tracers under the current Trace."""
        return Primitive.binder(self, *args, **params)

    @property
    def impl(self) -> Callable[..., Any] | None:
        """What evaluates it, as `def_impl` takes it."""
        return self.run or self.eval

    # The names that libraries of the JAX ecosystem use to define primitives of their own, and to ask what one is.
    call_primitive: ClassVar[bool] = False  # no primitive takes a function as its first argument
    map_primitive: ClassVar[bool] = False

    def def_impl(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.eval = function
        return function

    def def_abstract_eval(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.type = function
        return function


def registered(name: str) -> Primitive:
    """The primitive of this name; KeyError if there is none."""
    return REGISTRY[name]


def register(primitive: Primitive) -> Primitive:
    """Enter a primitive of this project in the registry; names are unique."""
    if primitive.name in REGISTRY:
        raise ValueError(f"primitive {primitive.name!r} is registered twice")
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    primitive.file = frame.f_code.co_filename
    REGISTRY[primitive.name] = primitive
    return primitive
