"""Orders of rows that one program does not hold: of one and several digits, with ties, and of numbers whose words are other ones."""

from __future__ import annotations

import fuser.numpy as fnp
from fuser import lax
from tests.backends.product_cases import Form, f32, of

ORDERS: dict[str, Form] = {
    "positions of float32": (lambda x: fnp.argsort(x), (f32(1500),)),
    "rows of float32": (lambda x: fnp.sort(x, axis=1), (f32(3, 1100),)),
    "several blocks with ties": (lambda x: fnp.argsort(x), (of("int32", 3000),)),
    "one digit": (lambda x: fnp.argsort(x), (of("uint8", 1100),)),
    "two digits of float16": (lambda x: (fnp.sort(x), fnp.argsort(x)), (of("float16", 1030),)),
    "downwards": (lambda x: fnp.argsort(x, descending=True), (of("bfloat16", 1030),)),
    "what is carried along": (lambda x, y: lax.sort((x, y), num_keys=1), (of("int8", 1100), f32(1100))),
}
