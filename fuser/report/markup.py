"""HTML and SVG elements as text that is escaped unless it is already markup.

`tag("p", "a < b", class_="note")` is `<p class="note">a &lt; b</p>`: a plain string is a person's text, a `Markup`
is what `tag` made. So text of the user cannot become an element by being forgotten.
"""

from __future__ import annotations

import re
from html import escape

_VOID = frozenset({"meta", "link", "br", "col", "rect", "circle", "path", "line"})
_KEYWORDS = re.compile(
    r"and|as|assert|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|"
    r"lambda|not|or|pass|raise|return|while|with|yield|None|True|False|const|static|inline|void|int|float|"
    r"double|char|long|short|unsigned|signed|size_t|struct|typedef|restrict|int8_t|int16_t|int32_t|int64_t|"
    r"uint8_t|uint16_t|uint32_t|uint64_t|_Bool|bool|do|switch|case|default|extern|register|volatile"
)
_COMMENTS = {"c": r"//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*", "python": r"\#[^\n]*"}
_WORDS = r"|(?P<text>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')|(?P<number>\b\d[\w.]*(?:(?<=e)[+-]\d+)?)|(?P<word>[^\W\d]\w*)"


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | None


def tag(name: str, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """An element. `class_` is the attribute class, `aria_label` is aria-label; None and False leave one out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID and not children:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Children side by side, plain strings escaped."""
    return Markup(
        "".join(child if isinstance(child, Markup) else escape(child) for child in children if child is not None)
    )


def _attribute(key: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'


def inline(sentence: str) -> Markup:
    """A sentence with what stands in `backticks` as code."""
    pieces = re.split(r"`([^`]*)`", sentence)
    return join(*(tag("code", piece) if index % 2 else piece for index, piece in enumerate(pieces)))


def highlight(text: str, language: str) -> Markup:
    """Source text with comments, strings, numbers and keywords marked; `language` is c, or else read as Python."""
    comments = _COMMENTS["c" if language.lower() in ("c", "cuda") else "python"]
    pattern = re.compile(f"(?P<comment>{comments}){_WORDS}", re.MULTILINE | re.DOTALL)
    pieces: list[str] = []
    end = 0
    for match in pattern.finditer(text):
        pieces += [text[end : match.start()], _marked(match)]
        end = match.end()
    return join(*pieces, text[end:])


def _marked(match: re.Match[str]) -> str:
    kind, found = match.lastgroup, match.group()
    if kind == "word":
        return tag("b", found) if _KEYWORDS.fullmatch(found) else found
    return tag({"comment": "i", "text": "q", "number": "u"}[kind or "comment"], found)
