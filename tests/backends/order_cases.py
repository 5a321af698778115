"""Orders of rows that one program does not hold: of one and several digits, with ties, and of numbers whose words are other ones; and of those that
one holds, with positions and without."""

from __future__ import annotations

import fuser.numpy as fnp
from fuser import lax
from tests.backends.product_cases import Form, f32, of

ORDERS: dict[str, Form] = {
    "positions of float32": (lambda x: fnp.argsort(x), (f32(5500),)),
    "rows of float32": (lambda x: fnp.sort(x, axis=1), (f32(3, 5100),)),
    "several blocks with ties": (lambda x: fnp.argsort(x), (of("int32", 7000),)),
    "one digit": (lambda x: fnp.argsort(x), (of("uint8", 4100),)),
    "two digits of float16": (lambda x: (fnp.sort(x), fnp.argsort(x)), (of("float16", 4130),)),
    "downwards": (lambda x: fnp.argsort(x, descending=True), (of("bfloat16", 4130),)),
    "what is carried along": (lambda x, y: lax.sort((x, y), num_keys=1), (of("int8", 4300), f32(4300))),
    "whole rows of float32": (lambda x: fnp.sort(x, axis=1), (f32(3, 1100),)),
    "whole rows of float32 whose zeros have both signs": (lambda x: fnp.sort(fnp.round(x), axis=1), (f32(3, 600),)),
    "whole rows of float32 without zeros": (lambda x: fnp.sort(fnp.abs(x) + 1, axis=1), (f32(2, 4096),)),
    "whole rows of int32": (lambda x: fnp.sort(x, axis=1), (of("int32", 3, 700),)),
    "positions in whole rows": (lambda x: fnp.argsort(x, axis=1), (of("int16", 2, 2100),)),
}
