"""Imports of `jax`, `jax.*` and `jaxlib` answered by fuser; the real packages, installed or not, are never loaded.

A module that has the same names in fuser is that module. One that lacks some is a `Facade`: it looks a name up in the table
`names.RENAMED` first, and in fuser's module of the same path then.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from fuser.compat.names import MODULES, PUBLIC, REFUSED, RENAMED
from fuser.compat.version import __version__
from fuser.config import config
from fuser.errors import AbsentError
from fuser.gaps import reason
from fuser.numpy.types import SCALAR_TYPES

PACKAGES = ("jax", "jaxlib")


def install_as_jax() -> ModuleType:
    """Make `import jax` mean fuser in this process, and return that module. ImportError where the real JAX has been imported.

    JAX's environment variables set what they name (`JAX_ENABLE_X64=1`). Programs compare the text of jaxprs, so that `str(graph)` is without the lines of equations from then on, as JAX's is, and
    print, pickle and name tests by scalar types, which are `jax.numpy`'s from then on.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        loaded = sys.modules.get("jax")
        if loaded is not None:
            raise ImportError(
                f"jax has been imported already, from {getattr(loaded, '__file__', None) or 'somewhere else'}; call fuser.compat.install_as_jax() "
                "before anything imports it, or start the program with `python -m fuser run`"
            )
        sys.meta_path.insert(0, _Finder())
        config.update("graph_sources", False)
        config.take_environment()
        for kind in SCALAR_TYPES:
            kind.__module__ = "jax.numpy"
    return importlib.import_module("jax")


def target(path: str) -> str | None:
    """The module of fuser that has the names of JAX's module `path` ("" is jax itself); None where there is none."""
    name = f"fuser.{path}".rstrip(".")
    if path and path.split(".")[0] not in PUBLIC:
        return None
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    return None if found is None else name


class Facade(ModuleType):
    """A module of JAX's name: names from the table, else those of the module `_own` of fuser, else submodules."""

    _own: ModuleType | None
    _path: str

    def __init__(self, path: str) -> None:
        super().__init__(f"jax.{path}".rstrip("."))
        own = target(path)
        self._path = path
        self._own = None if own is None else importlib.import_module(own)
        self.__doc__ = f"JAX's names of {self.__name__}, from fuser." if self._own is None else self._own.__doc__
        self.__path__: list[str] = []
        self.__all__ = [name for name in dir(self) if not name.startswith("_")]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in RENAMED.get(self._path, {}):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = self._found(name)
        if not isinstance(value, ModuleType):
            setattr(self, name, value)
        return value

    def _found(self, name: str) -> Any:
        renamed = RENAMED.get(self._path, {}).get(name)
        if renamed is not None:
            return resolve(renamed[0])
        inner = f"{self._path}.{name}".lstrip(".")
        if inner in MODULES:
            return importlib.import_module(f"jax.{inner}")
        refused = REFUSED.get(self._path, {}).get(name)
        if self._own is not None and (refused is None or hasattr(self._own, name)):
            return self._of_own(self._own, name)
        if refused is not None:
            return _refused(f"{self.__name__}.{name}", refused[0])
        known = reason(self._path, name)
        if known is not None:
            raise AbsentError(f"{self.__name__}.{name} is not offered: {known[0]}; instead: {known[1]}")
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def _of_own(self, own: ModuleType, name: str) -> Any:
        """A name of the module of fuser's; where it has none, the error names the module that the program asked."""
        try:
            return getattr(own, name)
        except AttributeError as error:
            if str(error) != f"module {own.__name__!r} has no attribute {name!r}":
                raise
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> Iterable[str]:
        public = [] if self._own is None else getattr(self._own, "__all__", dir(self._own))
        own = (*RENAMED.get(self._path, {}), *REFUSED.get(self._path, {}))
        return sorted({*super().__dir__(), *own, *public})


def _refused(name: str, why: str) -> type:
    """A class of this name without instances: AbsentError when one is made."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        raise AbsentError(f"{name} is not offered: {why}")

    module, _, own = name.rpartition(".")
    return type(own, (), {"__init__": __init__, "__module__": module, "__doc__": f"Not offered: {why}."})


def resolve(place: str) -> Any:
    """What stands at "module:name", or the module "module"."""
    module, _, name = place.partition(":")
    found: Any = importlib.import_module(module)
    return getattr(found, name) if name else found


class _Finder(MetaPathFinder, Loader):
    """Gives every import below `PACKAGES` a module of fuser's, or says that there is none."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target_: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, inner = fullname.partition(".")
        if package not in PACKAGES:
            return None
        inner = inner if package == "jax" else f"lib.{inner}".rstrip(".")
        if inner not in MODULES and target(inner) is None:
            raise ModuleNotFoundError(_absence(fullname, inner), name=fullname)
        spec = ModuleSpec(fullname, self, is_package=True)
        spec.loader_state = inner
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        inner = spec.loader_state
        if inner in MODULES:
            return Facade(inner)
        module = importlib.import_module(str(target(inner)))
        self._kept = module.__spec__  # the import system overwrites it
        return module

    def exec_module(self, module: ModuleType) -> None:
        if not isinstance(module, Facade):
            module.__spec__ = self._kept

    def find_distributions(self, context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        """What `importlib.metadata` says of the packages: their version."""
        name = getattr(context, "name", None)
        return (_Distribution(package) for package in PACKAGES if name is None or name == package)


class _Distribution(importlib.metadata.Distribution):
    """The metadata of a package that is not installed as such."""

    def __init__(self, package: str) -> None:
        self._package = package

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: {self._package}\nVersion: {__version__}\n"
        return None

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"{self._package} is fuser: it has no file {path}")


def _absence(fullname: str, inner: str) -> str:
    parent, _, name = inner.rpartition(".")
    known = reason(parent, name)
    words = f"No module named {fullname!r}: `jax` is fuser here (fuser.compat)"
    return words if known is None else f"{words}, which does not offer it: {known[0]}; instead: {known[1]}"
