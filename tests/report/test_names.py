"""Names of functions, files, arguments, keys and axes may be anything: no text of ours is changed by them, nor any file beyond."""

from __future__ import annotations

import ast
import html.parser
import json
import pathlib
import random
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.config import config
from fuser.errors import PerformanceWarning
from fuser.ir.names import identifier, printable

PIECES = (
    "\n", "\r", "\r\n", "\x00", "\x0b", "\x0c", "\x1b[31m", "\x85", "\u2028", "\u202e", "\ud800", "\udcff", "\ufeff",
    '"', "'", '"""', "'''", "\\", "\\\n", "\\", "??/", "??/\n", "*/", "/*", "//", "#", "#include <stdlib.h>", "#if 0",
    "../", "/../../", "..", "~", "$(touch x)", "`touch x`", "; touch x;", "%s%n", "{0}", "{x}", "</script>", "<script>",
    "<!--", "]]>", "<img src=x onerror=alert(1)>", "&amp;", "[/bold]", "[red]", "\t", " ", "é", "名", "²", "\U0001f600",
    "int system(const char*);", "__attribute__((constructor)) static void p(void){system(\"touch PWNED\");}",
    "import os; os.abort()", "k0_mul", "kernel", "in0", "out0", "restrict", "lambda", "x" * 5000,
)  # fmt: skip
WHOLE = [
    'a\nint system(const char*); __attribute__((constructor)) static void p(void){system("touch PWNED");}\n#define X ',
    "x/../../../OUT",
    "x" * 5000,
    "\ud800",
    "a\x00b",
    "",
    "a.py\\",
    "a??/",
    "\nimport os\nos.abort()\n",
    "/dev/zero",
    "</script><script>alert(1)</script>",
]


def names(seed: int, count: int) -> Iterator[str]:
    """Hostile names: the known ones, then mixtures."""
    yield from WHOLE
    generator = random.Random(seed)
    for _ in range(count):
        yield "".join(generator.choices(PIECES, k=generator.randint(1, 4)))


def called(name: str, filename: str = "plain.py", body: str = "(x * 2.5 + 1).sum()") -> Callable[..., Any]:
    """A function whose name, and whose file's, is this."""
    scope: dict[str, Any] = {"fnp": fnp, "fuser": fuser}
    exec(compile(f"def f(x, **more):\n    return {body}\n", filename.replace("\x00", "") or "e", "exec"), scope)
    function = scope["f"]
    code = function.__code__.replace(co_name=name, co_filename=filename, co_qualname=name)
    made = types.FunctionType(code, scope, name)
    made.__name__ = name
    return made


@pytest.fixture(autouse=True)
def alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a name runs or writes would be seen here."""
    inside = tmp_path / "a" / "b" / "c"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    yield
    assert [p for p in tmp_path.rglob("*") if p.is_file() and (inside / "dump") not in p.parents] == []


def one_line(text: str, limit: int = 2000) -> None:
    assert text.isprintable() and len(text) < limit
    text.encode("utf-8")


def test_printable_and_identifier_hold_for_any_text() -> None:
    for name in names(0, 2000):
        one_line(printable(name), 1300)
        assert "*/" not in printable(name) and "??/" not in printable(name)
        assert identifier(name).isidentifier() and identifier(name).isascii() and len(identifier(name)) < 130
    assert printable("mlp.py") == "mlp.py" and printable("größe") == "größe" and identifier("<lambda>") == "_lambda_"


def programs(name: str) -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    """A program under a hostile function's name, file's name, key."""
    yield called(name), {}
    yield called("f", name), {}
    yield called(name, name, "{'y': (x * 2.5 + sum(more.values())).sum()}['y']"), {name: np.float32(1)}


def text_of(lowered: Any) -> str:
    return "\n".join(source.text for source in lowered.sources)


@pytest.mark.parametrize("backend", ["c", "triton", "tpu", "reference"])
def test_texts_of_kernels_differ_in_comments_alone(backend: str) -> None:
    known: list[str] = []
    for name in names(1, 25):
        for index, (function, more) in enumerate(programs(name)):
            lowered = fuser.jit(function, backend=backend).lower(fnp.arange(4.0), **more)
            mark = "//" if backend == "c" else "#"
            lines = [line for line in text_of(lowered).split("\n") if not line.lstrip().startswith(mark)]
            text = "\n".join(line.partition("  # ")[0].rstrip() for line in lines)
            if backend in ("triton", "tpu") and text.strip():
                text = ast.dump(ast.parse(text_of(lowered)))
                compile(text_of(lowered), "kernel", "exec")
            if len(known) <= index:
                known.append(text)
            assert text == known[index]
            for line in text_of(lowered).split("\n"):
                one_line(line)
                assert not line.endswith("\\")


def test_what_c_compiles_under_any_name_computes_the_same() -> None:
    x = fnp.arange(4.0)
    for n, name in enumerate(names(2, 3)):
        for function, more in programs(name):
            factor = 1 + n / 64  # a program of its own: nothing comes out of the cache
            jitted = fuser.jit(lambda x, f=function, k=factor, **more: f(x * k, **more), backend="c")
            np.testing.assert_allclose(float(jitted(x, **more)), 15 * factor + 4, rtol=1e-6)


def test_dumps_stay_inside_and_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pathlib.Path("dump").resolve()
    with config.using(dump=str(folder)):
        for name in names(3, 15):
            for function, more in programs(name):
                fuser.jit(function).lower(fnp.arange(4.0), **more)
    files = [p for p in folder.rglob("*") if p.is_file()]
    assert len(files) > 100
    for path in files:
        assert folder in path.resolve().parents
        path.read_text(encoding="utf-8")


class Page(html.parser.HTMLParser):
    """The elements of a page, and its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def test_reports_have_the_same_parts_under_any_name() -> None:
    expected: list[tuple[int, int, frozenset[str]]] = []
    for name in names(4, 4):
        for index, (function, more) in enumerate(list(programs(name))[2:]):
            profile = fuser.profile(fuser.jit(function), repeats=1)(fnp.arange(4.0), **more)
            page = Page(profile.html())
            found = (page.tags.count("script"), page.tags.count("iframe"), frozenset(page.attributes))
            if len(expected) <= index:
                expected.append(found)
            assert found == expected[index] and "img" not in page.tags
            json.loads(profile.to_json()), json.loads(profile.chrome_trace())
            for text in (profile.text(), profile.html(), profile._repr_html_()):
                text.encode("utf-8")
                assert "\x1b" not in text and "\x00" not in text
            for suffix in ("html", "json", "txt", "trace.json"):
                profile.save(f"dump_{suffix}.{suffix}")
                pathlib.Path(f"dump_{suffix}.{suffix}").unlink()


def test_explanations_and_messages_are_lines() -> None:
    for name in names(5, 12):
        for function, more in programs(name):
            jitted = fuser.jit(function, static_argnames="n")
            text = str(fuser.explain(jitted)(fnp.arange(4.0), **more))
            for line in text.split("\n"):
                one_line(line)
            text = str(jitted.trace(fnp.arange(4.0), **more).graph)
            for line in text.split("\n"):
                one_line(line)


def messages(name: str) -> Iterator[Callable[[], Any]]:
    """Calls that fail and name what the user called something."""
    x = fnp.ones(3)
    yield lambda: fuser.jit(called(name, name, "float(x)"))(x)
    yield lambda: fuser.jit(called(name, name, "x + fnp.ones(5)"))(x)
    yield lambda: fuser.jit(called(name, name, "object()"))(x)
    yield lambda: fuser.jit(called(name, name, "more"))({name: "text"})
    yield lambda: fuser.jit(called(name, name, "x"))(x, **{name: object()})
    yield lambda: fuser.grad(called(name, name, "x"))(x)
    yield lambda: fuser.vmap(called(name, name), axis_name=name)({name: 1.0})
    yield lambda: fuser.vmap(called(name, name, "fuser.lax.psum(x, 'other')"), axis_name=name)(x)
    yield lambda: fuser.jit(called(name, name), static_argnums=5)
    yield lambda: fuser.jit(called(name, name), donate_argnames=name)(x)
    yield lambda: fuser.jit(called(name, name), backend=name)(x)
    yield lambda: fuser.jit(called(name), static_argnames="y")(x, y=[name])
    yield lambda: fuser.lax.map(called(name, name, "object()"), x)
    yield lambda: fuser.lax.while_loop(lambda c: c.sum() < 1, called(name, name, "x[:1]"), x)
    yield lambda: fuser.accelerate(called(name, name, "float(x.sum()) and 1"))(np.ones(3))
    yield lambda: fuser.custom_jvp(called(name, name))(x)
    yield lambda: fuser.vjp(called(name, name), x)[1]((x, x))
    yield lambda: fuser.random.key(0, impl=name)


def test_errors_say_hostile_names_in_visible_characters() -> None:
    told = 0
    for name in names(6, 12):
        for call in messages(name):
            try:
                call()
            except (OverflowError, UnicodeError) as error:
                raise AssertionError(f"{name!r:.200}") from error
            except Exception as error:
                told += 1
                for line in str(error).split("\n"):
                    one_line(line, 40_000)  # what the user passed is shown as it is
    assert told > 100


class Unspeakable:
    """A static argument whose repr is of no help."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __repr__(self) -> str:
        if self.text is None:
            raise ValueError("no words")
        return self.text


def test_signatures_and_advice_hold_with_hostile_static_arguments() -> None:
    jitted = fuser.jit(called("f\n", "g\x00\n.py", "x * 2"), static_argnames="n")
    for name in [None, *names(7, 10)]:
        jitted(fnp.ones(2), n=Unspeakable(name))
    for line in str(fuser.explain(jitted)(fnp.ones(2), n=Unspeakable(None))).split("\n"):
        one_line(line)
    donating = fuser.jit(called("f\n", "g\x00\n.py", "x[:1]"), donate_argnums=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        donating(fnp.ones(1 << 19))
    assert [one_line(str(w.message)) for w in caught if w.category is PerformanceWarning]
    assert warnings.formatwarning(*[getattr(caught[0], k) for k in ("message", "category", "filename", "lineno")])
