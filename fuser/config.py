"""Settings: the only reader of `os.environ`.

Each flag has one entry in `FLAGS`: its environment variable, how to read it and its default. `config.update(name,
value)` changes a flag for the process, and `with config.using(name=value)` for the current thread.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fuser.jax_settings import FIXED, FIXED_BARE, TRANSLATED, WITHOUT_EFFECT

_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "": False,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def _boolean(text: str) -> bool:
    try:
        return _WORDS[text.strip().lower()]
    except KeyError:
        raise ValueError("no truth value") from None


_KINDS: dict[Callable[[str], Any], str] = {
    int: "an integer",
    float: "a number",
    _boolean: "1, true, yes, on, 0, false, no or off",
}


def _cache_home() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")
    return str(pathlib.Path(base) / "fuser")


# name: (environment variable, reader, default)
FLAGS: dict[str, tuple[str, Callable[[str], Any], Any]] = {
    "enable_x64": ("FUSER_ENABLE_X64", _boolean, False),
    "backend": ("FUSER_BACKEND", str, ""),  # "" = triton where there is a GPU, else c
    "check": ("FUSER_CHECK", _boolean, False),
    "dump": ("FUSER_DUMP", str, ""),
    "fuel": ("FUSER_FUEL", int, -1),
    "override": ("FUSER_OVERRIDE", str, ""),
    "tune": ("FUSER_TUNE", _boolean, False),  # schedules are measured on the GPU when a program is compiled
    "cache": ("FUSER_CACHE", _boolean, True),
    "cache_dir": ("FUSER_CACHE_DIR", str, None),  # None = $XDG_CACHE_HOME/fuser
    "cache_limit": ("FUSER_CACHE_LIMIT", int, 1 << 30),  # bytes
    "cc": ("FUSER_CC", str, ""),  # "" = cc, gcc or clang, the first found
    "native": ("FUSER_NATIVE", _boolean, True),  # False: run in Python even where the native core was built
    "tpu_interpret": (
        "FUSER_TPU_INTERPRET",
        _boolean,
        False,
    ),  # True: kernels of the tpu backend run in Pallas' interpreter
    "threads": ("FUSER_THREADS", int, 0),  # 0 = the CPUs this process may use
    "num_cpu_devices": ("FUSER_NUM_CPU_DEVICES", int, 1),  # into which this process divides the CPU
    "collective_timeout": ("FUSER_COLLECTIVE_TIMEOUT", float, 60.0),  # seconds that other processes are waited for
    "memory_limit": ("FUSER_MEMORY_LIMIT", int, 0),  # bytes of the CPU pool; 0 = none
    "captured_constants_warn_bytes": ("FUSER_CAPTURED_CONSTANTS_WARN_BYTES", int, 256 << 20),  # -1: never
    "traceback": ("FUSER_TRACEBACK", str, "short"),  # "full" shows fuser's own frames
    "disable_jit": ("FUSER_DISABLE_JIT", _boolean, False),  # jitted functions run as they stand, operation by operation
    "debug_nans": ("FUSER_DEBUG_NANS", _boolean, False),  # a nan is an error that names the operation and the line
    "debug_infs": ("FUSER_DEBUG_INFS", _boolean, False),
    "log_compiles": ("FUSER_LOG_COMPILES", _boolean, False),  # each compilation is a warning of the logger "fuser"
    "numpy_rank_promotion": ("FUSER_NUMPY_RANK_PROMOTION", str, "allow"),
    "numpy_dtype_promotion": ("FUSER_NUMPY_DTYPE_PROMOTION", str, "standard"),
    "default_matmul_precision": ("FUSER_DEFAULT_MATMUL_PRECISION", str, ""),  # of products that name none
    "check_tracer_leaks": ("FUSER_CHECK_TRACER_LEAKS", _boolean, False),  # a tracer that outlives its trace is an error
    "allow_f16_reductions": (
        "FUSER_ALLOW_F16_REDUCTIONS",
        _boolean,
        True,
    ),  # False: lax.reduce_sum of halves is an error
    "check_static_indices": ("FUSER_CHECK_STATIC_INDICES", _boolean, False),  # known indices out of bounds are errors
    "disable_bwd_checks": ("FUSER_DISABLE_BWD_CHECKS", _boolean, False),  # cotangents of custom_vjp rules of any shape
    "random_seed_offset": ("FUSER_RANDOM_SEED_OFFSET", int, 0),  # is added to the seed of each key
    "default_prng_impl": ("FUSER_DEFAULT_PRNG_IMPL", str, "threefry2x32"),  # the generator of keys that name none
    "threefry_partitionable": (
        "FUSER_THREEFRY_PARTITIONABLE",
        _boolean,
        True,
    ),  # False: random bits as JAX drew them before
    "legacy_prng_key": ("FUSER_LEGACY_PRNG_KEY", str, "allow"),  # keys as arrays of two words
    "enable_custom_prng": ("FUSER_ENABLE_CUSTOM_PRNG", _boolean, False),  # PRNGKey gives keys of the newer form
    "explicit_x64_dtypes": ("FUSER_EXPLICIT_X64_DTYPES", str, "warn"),  # 64-bit dtypes asked for by name
    "export_calling_convention_version": ("FUSER_EXPORT_CALLING_CONVENTION_VERSION", int, 10),  # of exported functions
    "no_tracing": ("FUSER_NO_TRACING", _boolean, False),  # a function that would have to be traced is an error
    "no_execution": ("FUSER_NO_EXECUTION", _boolean, False),  # a compiled program that would run is an error
    "default_device": ("FUSER_DEFAULT_DEVICE", str, None),  # a Device or a platform's name: where uncommitted arrays go
    "transfer_guard": ("FUSER_TRANSFER_GUARD", str, None),  # sets all three that follow
    "transfer_guard_host_to_device": ("FUSER_TRANSFER_GUARD_HOST_TO_DEVICE", str, "allow"),
    "transfer_guard_device_to_device": ("FUSER_TRANSFER_GUARD_DEVICE_TO_DEVICE", str, "allow"),
    "transfer_guard_device_to_host": ("FUSER_TRANSFER_GUARD_DEVICE_TO_HOST", str, "allow"),
    "array_garbage_collection_guard": ("FUSER_ARRAY_GARBAGE_COLLECTION_GUARD", str, "allow"),
    "thread_guard": ("FUSER_THREAD_GUARD", _boolean, False),  # programs of several processes run in one thread
    "auto_pcast": ("FUSER_AUTO_PCAST", _boolean, True),  # operands that vary along different mesh axes go together
    "explain_cache_misses": ("FUSER_EXPLAIN_CACHE_MISSES", _boolean, False),  # why a function is traced is logged
    "graph_sources": ("FUSER_GRAPH_SOURCES", _boolean, True),  # str(graph) has the user's line behind each equation
    "logging_level": (
        "FUSER_LOGGING_LEVEL",
        str,
        "NOTSET",
    ),  # of the logger "fuser", which writes to stderr once it is set
    "high_dynamic_range_gumbel": ("FUSER_HIGH_DYNAMIC_RANGE_GUMBEL", _boolean, False),  # gumbel(mode="high") by default
}
_LEVELS = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")
# Settings that stand for several: each of these gets their value.
TOGETHER: dict[str, tuple[str, ...]] = {
    "transfer_guard": tuple(
        f"transfer_guard_{way}" for way in ("host_to_device", "device_to_device", "device_to_host")
    ),
}
# What a setting may be, where not everything of its type will do.
_PRECISIONS = (
    *("default", "high", "highest", "bfloat16", "tensorfloat32", "float32"),
    *("ANY_F8_ANY_F8_F32", "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY", "ANY_F8_ANY_F8_ANY_FAST_ACCUM"),
    *(
        "F16_F16_F16",
        "F16_F16_F32",
        "BF16_BF16_BF16",
        "BF16_BF16_F32",
        "BF16_BF16_F32_X3",
        "BF16_BF16_F32_X6",
        "BF16_BF16_F32_X9",
    ),
    *("TF32_TF32_F32", "TF32_TF32_F32_X3", "F32_F32_F32", "F64_F64_F64"),
)
CHOICES: dict[str, tuple[Any, ...]] = {
    "numpy_rank_promotion": ("allow", "warn", "raise"),
    "numpy_dtype_promotion": ("standard", "strict"),
    "default_matmul_precision": (None, "", *_PRECISIONS),
    "legacy_prng_key": ("allow", "warn", "error"),
    "explicit_x64_dtypes": ("warn", "error", "allow"),
    "logging_level": ("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    "transfer_guard": (None, *_LEVELS),
    **dict.fromkeys(TOGETHER["transfer_guard"], (None, *_LEVELS)),
    "array_garbage_collection_guard": (None, "allow", "log", "fatal"),
}
# What a traced program depends on: programs are kept for each combination of these.
TRACED = (
    "backend",
    "disable_jit",
    "debug_nans",
    "debug_infs",
    "numpy_rank_promotion",
    "numpy_dtype_promotion",
    "explicit_x64_dtypes",
    "default_matmul_precision",
    "check_tracer_leaks",
    "allow_f16_reductions",
    "check_static_indices",
    "random_seed_offset",
    "legacy_prng_key",
    "default_prng_impl",
    "threefry_partitionable",
    "high_dynamic_range_gumbel",
    "enable_custom_prng",
    "no_execution",
    "default_device",
    "auto_pcast",
    "user_contexts",
    "meshes",
)
# What the native core asks before it finds a program by its arguments: while one of these is set, calls go through Python.
GUARDING = ("transfer_guard_host_to_device", "profiling")
PLATFORMS = ("cpu", "gpu", "cuda")
# What no user sets by name: see fuser.make_user_context, fuser.set_mesh and fuser.profiler.
_HIDDEN: dict[str, Any] = {"user_contexts": (), "meshes": (), "profiling": False}


def _own(name: str) -> str:
    return name.removeprefix("jax_").removeprefix("fuser_")


def _flag(name: str) -> str:
    """The setting of that name, JAX's names among them; AttributeError where there is none."""
    own = _own(name)
    if own in TRANSLATED:
        return TRANSLATED[own].name
    if own not in FLAGS and own not in _HIDDEN and own not in WITHOUT_EFFECT:
        raise AttributeError(f"no setting {name!r}; the settings are {', '.join(FLAGS)}, and JAX's")
    return own


def _fixed(name: str) -> tuple[Any, str] | None:
    """The one value of a setting of JAX that has one here, and what to use in place of another."""
    return FIXED_BARE.get(name) or FIXED.get(name.removeprefix("jax_"))


def _setting(name: str, value: Any) -> dict[str, Any]:
    """A setting's name here and its value, checked; nothing where it has one value and this is it."""
    fixed = _fixed(name)
    if fixed is not None:
        if value != fixed[0]:
            raise ValueError(
                f"the setting {_own(name)} of JAX is always {fixed[0]!r} here, got {value!r}; instead: {fixed[1]}"
            )
        return {}
    own = _own(name)
    if own in TRANSLATED:
        return {TRANSLATED[own].name: TRANSLATED[own].taken(value)}
    return {_flag(name): _checked(_flag(name), value)}


def _checked(name: str, value: Any) -> Any:
    if name == "default_device" and not (value is None or value in PLATFORMS or hasattr(value, "platform")):
        raise ValueError(
            "jax.default_device must be passed either a Device object (e.g. `fuser.devices('cpu')[0]`) or a platform name string "
            f"like 'cpu' or 'gpu', got: {value!r}"
        )
    choices = CHOICES.get(name)
    if choices is not None and value not in choices:
        raise ValueError(f"{name} is one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


class Config:
    """The flags, as attributes. Values set with `using` belong to the thread that set them."""

    def __init__(self) -> None:
        self._values = {name: self._initial(name) for name in FLAGS} | _HIDDEN | WITHOUT_EFFECT
        self._traced: tuple[Any, ...] | None = None
        self._local = threading.local()
        self._watchers: dict[str, list[Callable[[Any, bool], object]]] = {}

    @staticmethod
    def _initial(name: str) -> Any:
        variable, read, default = FLAGS[name]
        text = os.environ.get(variable)
        if text is None:
            return _cache_home() if name == "cache_dir" else default
        try:
            value = read(text)
        except ValueError:
            raise ValueError(f"{variable}={text!r} is not {_KINDS[read]}; unset it or correct it") from None
        try:
            return _checked(name, value)
        except ValueError as error:
            raise ValueError(f"{variable}: {error}; unset it or correct it") from None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        override = self._local.__dict__.get(name, self)
        if override is not self:
            return override
        try:
            return self._values[name]
        except KeyError:
            fixed, own = _fixed(name), _own(name)
            if fixed is not None:
                return fixed[0]
            found = getattr(self, _flag(name))
            return TRANSLATED[own].given(found) if own in TRANSLATED else found

    def config_with_absl(self) -> None:
        """Settings as flags of absl's command line, read by its `app.run`."""
        from fuser.absl_flags import define_flags

        define_flags()

    def complete_absl_config(self, absl_flags: Any) -> None:
        """Set what the flags that absl has read say."""
        from fuser.absl_flags import take_flags

        take_flags(absl_flags)

    def parse_flags_with_absl(self) -> None:
        """Settings as flags of absl's command line, read at once."""
        from fuser.absl_flags import parse_flags

        parse_flags()

    def read(self, name: str) -> Any:
        """A setting by its name, as this thread has it."""
        return getattr(self, name)

    @property
    def x64_enabled(self) -> bool:
        """JAX's name for `enable_x64` where it is read."""
        return bool(self.enable_x64)

    @property
    def traced(self) -> tuple[Any, ...]:
        """What traced programs depend on, as this thread has it."""
        if not self._local.__dict__:
            if self._traced is None:
                self._traced = tuple([self._values[name] for name in TRACED])
            return self._traced
        return tuple([getattr(self, name) for name in TRACED])

    def all_settings(self) -> tuple[Any, ...]:
        """Every setting's value, as this thread has it."""
        own = self._local.__dict__
        return tuple(own.get(name, value) for name, value in self._values.items())

    def of_thread(self) -> dict[str, Any]:
        """What this thread has of its own, for `using` in another one."""
        return {name: value for name, value in self._local.__dict__.items() if name in FLAGS}

    def dispatched_of(self, of_thread: bool) -> tuple[Any, ...] | None:
        """The same, and what guards calls, as the process has it; or the thread, None where it has nothing of its own."""
        own = self._local.__dict__ if of_thread else {}
        names = (*TRACED, *GUARDING)
        if of_thread and not own.keys() & set(names):
            return None
        return tuple(own.get(name, self._values[name]) for name in names)

    def update(self, name: str, value: Any) -> None:
        """Set a flag for the whole process. JAX's names ("jax_enable_x64") are taken too.

        AttributeError for a name that there is not; ValueError for a value that the setting cannot have.
        """
        for own, checked in _setting(name, value).items():
            self._set(own, checked)

    def take_environment(self) -> None:
        """Set what JAX's environment variables say (`JAX_ENABLE_X64=1`), where fuser's own of the setting is not set."""
        for variable, text in os.environ.items():
            name = variable.lower()
            if not variable.startswith("JAX_") or _own(name) not in {*FLAGS, *TRANSLATED} or not text:
                continue
            own, read, _ = FLAGS[_flag(name)]
            if own not in os.environ:
                self.update(name, read(text))

    def _set(self, name: str, value: Any) -> None:
        for part in TOGETHER.get(name, ()):
            self.update(part, "allow" if value is None else value)
        old, self._values[name] = self._values[name], value
        self._traced = None
        try:
            self._announce(name, value, False)
        except Exception:
            self._values[name], self._traced = old, None
            raise

    def watch(self, name: str, told: Callable[[Any, bool], object]) -> None:
        """Call `told(value, for_this_thread)` now and whenever the flag changes; None where a thread has no own value.

        What it raises refuses the value.
        """
        self._watchers.setdefault(name, []).append(told)
        told(self._values[name], False)

    @contextlib.contextmanager
    def using(self, **values: Any) -> Iterator[None]:
        """Set flags for the current thread while the block runs."""
        values = {own: checked for n, value in values.items() for own, checked in _setting(n, value).items()}
        for name in values.keys() & TOGETHER.keys():
            values |= dict.fromkeys(TOGETHER[name], values[name])
        saved = dict(self._local.__dict__)
        self._local.__dict__.update(values)
        try:
            for name, value in values.items():
                self._announce(name, value, True)
            yield
        finally:
            self._local.__dict__.clear()
            self._local.__dict__.update(saved)
            for name in values:
                self._announce(name, saved.get(name), True)

    def _announce(self, name: str, value: Any, of_thread: bool) -> None:
        for told in self._watchers.get(name, ()):
            told(value, of_thread)


config = Config()


def environment(name: str) -> str | None:
    """A variable of the surrounding system (PATH, DISPLAY, ...) that is no setting of fuser."""
    return os.environ.get(name)


def unknown_variables() -> dict[str, str]:
    """Variables of fuser's prefix that are no setting, which nothing reads, each with the setting that it may be meant for, or ""."""
    import difflib

    known = [variable for variable, _, _ in FLAGS.values()]
    found = sorted(name for name in os.environ if name.startswith("FUSER_") and name not in known)
    return {name: next(iter(difflib.get_close_matches(name, known, 1)), "") for name in found}


def whole_environment() -> dict[str, str]:
    """All variables of the surrounding system, as a program that is started gets them."""
    return dict(os.environ)


def is_environment(value: object) -> bool:
    """Whether `value` is the process's environment, `os.environ`."""
    return value is os.environ


def extend_environment(values: dict[str, str]) -> None:
    """Set variables for libraries that read them when they are loaded; those that are there stay as they are."""
    for name, value in values.items():
        os.environ.setdefault(name, value)
