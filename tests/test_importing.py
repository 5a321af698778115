"""`import fuser` leaves the garbage collector, and what it has to look after, as they were."""

from __future__ import annotations

import subprocess
import sys

import pytest


def printed(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("before", ["gc.enable()", "gc.disable()"])
def test_the_collector_is_on_or_off_as_before(before: str) -> None:
    assert printed(f"import gc; {before}; on = gc.isenabled(); import fuser; print(gc.isenabled() is on)") == "True\n"


def test_garbage_of_before_is_still_collected() -> None:
    program = (
        "import gc, weakref\nclass Node: pass\nn = Node(); n.self = n; seen = weakref.ref(n); del n\nimport fuser\n"
    )
    assert printed(f"{program}gc.collect(); print(seen())") == "None\n"


def test_frozen_objects_stay_frozen() -> None:
    assert printed("import gc; gc.freeze(); import fuser; print(gc.get_freeze_count() > 0)") == "True\n"


def test_modules_that_few_programs_need_are_not_imported() -> None:
    absent = ("torch", "triton", "jax", "scipy", "fuser.runtime.toolchain", "fuser.kernel.lower")
    program = f"import sys; before = {{*sys.modules}}; import fuser; print([n for n in {absent} if n in {{*sys.modules}} - before])"
    assert printed(program) == "[]\n"
