"""How `import fuser` runs: Python's garbage collector rests, as what modules make stays.

Searches for garbage among it, and among NumPy's modules, would be a tenth of the import.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Meanwhile nothing is searched for garbage, and what is made then only where everything is (the oldest generation)."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # else what the user has frozen would thaw
            gc.freeze()
            gc.unfreeze()
        gc.enable()
