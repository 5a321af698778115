"""The page as text: well formed, loading nothing, with every text of a user escaped and every picture complete."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from fuser.report.markup import highlight, inline, tag

URLS = ("src", "href", "action", "data", "poster", "srcset", "xlink:href")


class Page(HTMLParser):
    """Elements with their attributes and text; fails on a tag that closes another than the innermost open one."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.elements.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.texts.append(data)

    def named(self, name: str, classes: str = "") -> list[dict[str, str | None]]:
        wanted = set(classes.split())
        return [
            found for what, found in self.elements if what == name and wanted <= set((found.get("class") or "").split())
        ]


@pytest.fixture(params=["profile", "bare", "hostile"])
def any_profile(request):
    return request.getfixturevalue(request.param)


def test_every_tag_is_closed(any_profile):
    assert Page(any_profile.html()).open == []


def test_nothing_is_loaded(any_profile):
    page = Page(any_profile.html())
    targets = [value for _, found in page.elements for key, value in found.items() if key in URLS]
    assert targets
    assert all(value.startswith("#") or value == "data:," for value in targets)
    styles = "".join(re.findall(r"<style>(.*?)</style>", any_profile.html(), re.DOTALL))
    assert "url(" not in styles
    assert "@import" not in styles
    policy = next(
        found["content"] for found in page.named("meta") if found.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")


def test_text_of_users_stays_text(profile, hostile):
    plain, page = Page(profile.html()), Page(hostile.html())
    for name in ("script", "img", "title"):
        assert len(page.named(name)) == len(plain.named(name))
    assert not page.named("img")
    assert any('<script>alert("x")</script>' in text for text in page.texts)


def test_ids_are_unique_and_links_lead_somewhere(profile):
    page = Page(profile.html())
    ids = [found["id"] for _, found in page.elements if "id" in found]
    assert len(ids) == len(set(ids))
    links = {found["href"].removeprefix("#") for found in page.named("a")}
    assert links <= set(ids)


def test_a_row_and_a_detail_for_each_kernel(profile):
    page = Page(profile.html())
    assert len(page.named("tr", "figures")) == len(page.named("tr", "detail")) == len(profile.kernels)
    assert len(page.named("div", "source")) == sum(kernel.generated for kernel in profile.kernels)
    text = "".join(page.texts)
    assert all(kernel.text in text for kernel in profile.kernels)
    assert all(line.text.strip() in text for kernel in profile.kernels for line in kernel.lines)


def test_pictures_have_a_mark_for_each_kernel(profile):
    page = Page(profile.html())
    assert len(page.named("a", "dot")) == len(page.named("circle")) == len(profile.kernels)
    assert len(page.named("a", "idle")) == 2
    assert len(page.named("a", "group")) == len(profile.kernels)
    assert len(page.named("g", "node")) + len(page.named("a", "node")) == len(profile.graph.nodes)
    assert len(page.named("path")) == len(profile.graph.edges)


def test_refusals_are_listed_with_reasons(profile):
    text = "".join(Page(profile.html()).texts)
    assert all(refusal.reason in text for refusal in profile.refused)


def test_empty_sections_say_so(bare):
    text = "".join(Page(bare.html()).texts)
    assert "This program has no kernels" in text
    assert "This profile carries no graph." in text
    assert "not measured" in text


def test_a_notebook_shows_the_page_in_a_frame(profile):
    (frame,) = Page(profile._repr_html_()).named("iframe")
    assert frame["srcdoc"] == profile.html()


def test_dots_lie_on_the_axes(profile):
    from fuser.report.roofline import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, fit

    scale = fit(profile)
    assert scale.x(10.0**scale.x_first) == LEFT
    assert scale.x(10.0**scale.x_last) == pytest.approx(WIDTH - RIGHT)
    assert scale.y(10.0**scale.y_first) == pytest.approx(HEIGHT - BOTTOM)
    assert scale.y(10.0**scale.y_last) == pytest.approx(TOP)
    for kernel in profile.kernels:
        if kernel.flops:
            roof = min(profile.machine.peak_flops, profile.machine.copy_bandwidth * kernel.arithmetic_intensity)
            assert scale.y(kernel.achieved_flops) > scale.y(roof)  # below the roof is further down the picture


def test_many_kernels_are_labelled_by_number(profile):
    many = replace(profile, kernels=profile.kernels * 3)
    page = Page(many.html())
    assert len(page.named("a", "dot")) == 15
    assert "2, 7, 12" in page.texts  # three dots on one spot share a label


def test_markup_escapes_what_is_not_markup():
    assert (
        tag("p", "a < b", tag("b", "&"), class_="x", data_value='"')
        == '<p class="x" data-value="&quot;">a &lt; b<b>&amp;</b></p>'
    )
    assert inline("see `a<b>` now") == "see <code>a&lt;b&gt;</code> now"


@pytest.mark.parametrize(
    ("language", "text", "marked"),
    [
        ("c", "for (x = 1.5f) // <end>", "<b>for</b> (x = <u>1.5f</u>) <i>// &lt;end&gt;</i>"),
        ("c", "#include <a>\nx #y", "<i>#include &lt;a&gt;</i>\nx #y"),
        ("triton", "def f(x): # 1", "<b>def</b> f(x): <i># 1</i>"),
        ("triton", "y = 'for' + z1", "y = <q>'for'</q> + z1".replace("'", "&#x27;")),
    ],
)
def test_highlight(language, text, marked):
    assert highlight(text, language) == marked
