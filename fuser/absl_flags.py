"""Settings as command-line flags of absl's, for programs that say `jax.config.config_with_absl()`: `--jax_enable_x64` and the like.

absl need not be installed for anything else.
"""

from __future__ import annotations

import sys
from typing import Any

from fuser.config import FLAGS, config
from fuser.jax_settings import TRANSLATED

# JAX's names of settings, and how each is read.
_READERS = {name: read for name, (_, read, _) in FLAGS.items() if name not in {t.name for t in TRANSLATED.values()}} | {
    name: FLAGS[translated.name][1] for name, translated in TRANSLATED.items()
}


def define_flags(absl: Any = None) -> None:
    """Each setting as a flag; what the command line says is set once absl's `app.run` has read it."""
    from absl import app, flags

    known = absl or flags
    for name, read in _READERS.items():
        flag = f"jax_{name}"
        if flag in known.FLAGS:
            continue
        define = known.DEFINE_bool if read.__name__ == "_boolean" else known.DEFINE_string
        define(flag, None, f"The setting {name}: see docs/environment.md.")
    app.call_after_init(lambda: take_flags(known))


def take_flags(absl: Any = None) -> None:
    """Set what the command line said. ValueError for what a setting cannot be."""
    from absl import flags

    values = (absl or flags).FLAGS
    for name, read in _READERS.items():
        flag = f"jax_{name}"
        if flag in values and values[flag].present:
            value = values[flag].value
            config.update(flag, read(value) if isinstance(value, str) else value)


def parse_flags() -> None:
    """Define the flags and read the command line, the flags that nobody has defined excepted."""
    from absl import flags

    define_flags(flags)
    flags.FLAGS(sys.argv, known_only=True)
    take_flags(flags)
