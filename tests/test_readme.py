"""README and docs: every Python block runs and prints what stands below it; commands, links and tables are true.

A `python` block directly followed by a `text` block must print exactly that; one that raises prints its error as Python's
last line does. Blocks of one file run in one process, in order, in an empty directory. `python -m tests.test_readme` writes
what they print now into the pages; read the difference before you commit it.
"""

from __future__ import annotations

import pathlib
import re
import tempfile
import tomllib

import pytest

from fuser import errors
from fuser.config import FLAGS
from tests import page_blocks
from tests.page_blocks import BLOCKS, PAGES, ROOT

INSTALLS = (
    'python -m pip install -c constraints.txt ".[demo]" && python -m fuser demo',
    'python -m pip install -c constraints.txt -e ".[test]" && python -m pytest',
)


def run_blocks(codes: list[str], folder: pathlib.Path) -> list[str]:
    """What each block prints on the C backend, on which the pages were written."""
    found = page_blocks.run(codes, folder, page_blocks.settings(folder, FUSER_BACKEND="c"))
    return [printed for printed, _ in found]


@pytest.mark.parametrize("page", PAGES)
def test_examples_print_what_the_page_says(page: str, tmp_path: pathlib.Path) -> None:
    blocks = BLOCKS.findall((ROOT / page).read_text())
    if not blocks:
        assert page in (
            "docs/command-line.md",
            "docs/differences-from-jax.md",
            "docs/environment.md",
            "docs/gpu.md",
            "docs/native-core.md",
            "docs/words.md",
        ), "a page of the others lost its examples"
        return
    printed = run_blocks([code for code, _ in blocks], tmp_path)
    assert [text for _, text in blocks] == printed


def test_the_readme_example_is_short() -> None:
    code = BLOCKS.findall((ROOT / "README.md").read_text())[0][0]
    assert len(code.splitlines()) <= 22


def test_exactly_two_commands_set_up() -> None:
    text = (ROOT / "README.md").read_text()
    assert tuple(line.strip() for line in text.splitlines() if "pip install" in line) == INSTALLS


def test_continuous_integration_runs_the_readme_command() -> None:
    """With further extras, all at once: each installation compiles the C anew."""
    script = (ROOT / ".ci" / "run").read_text()
    install, tests = INSTALLS[1].split(" && ")
    command, extras = re.fullmatch(r'(.*) -e "\.\[(.*)\]"', install).groups()
    found = re.search(r'python -m pip install (.*) -e "\.\[(.*)\]"', script)
    assert command.removeprefix("python -m pip install ") in found[1] and {*extras.split(",")} <= {*found[2].split(",")}
    assert tests in script


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(target).is_file(), target


@pytest.mark.parametrize("page", PAGES)
def test_paths_named_in_text_exist(page: str) -> None:
    for path in re.findall(r"`((?:fuser|bench|docs|tests)/[\w/.]+)`", (ROOT / page).read_text()):
        assert (ROOT / path).exists(), path


def test_every_setting_is_documented() -> None:
    rows = re.findall(
        r"^\| `(FUSER_\w+)` \| `(\w+)` \|(.*?)\|", (ROOT / "docs/environment.md").read_text(), re.MULTILINE
    )
    assert sorted((variable, name) for variable, name, _ in rows) == sorted((v, n) for n, (v, _, _) in FLAGS.items())
    for variable, name, default in rows:
        if name == "cache_dir":  # depends on the user's home
            continue
        _, read, value = FLAGS[name]
        if isinstance(value, bool):
            assert default.strip() == ("on" if value else "off"), variable
        else:
            assert (read(default.strip()) if default.strip() else "") == ("" if value is None else value), variable


def test_every_error_is_documented() -> None:
    rows = re.findall(r"^\| (`[A-Z]\w+`.*?) \| (.*?) \|", (ROOT / "docs/errors.md").read_text(), re.MULTILINE)
    listed = {name: set(re.findall(r"`(\w+)`", also)) for names, also in rows for name in re.findall(r"`(\w+)`", names)}
    classes = {n: c for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, errors.FuserError)}
    del classes["FuserError"]
    assert set(listed) == set(classes)
    for name, also in listed.items():
        builtin = {base.__name__ for base in classes[name].__mro__ if base.__module__ == "builtins"}
        assert also <= builtin, name


def test_every_direct_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["build-system"]["requires"] + project["project"]["dependencies"]
    wanted += [need for extra in project["project"]["optional-dependencies"].values() for need in extra]
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    for need in wanted:
        name, _, least = re.match(r"([\w-]+)(\[\w+\])?(?:>=([\d.]+))?", need).groups()
        if name == "fuser":
            continue
        assert name in pins, f"{name} has no pin in constraints.txt"
        assert least is None or version(pins[name]) >= version(least), need


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def renew(page: str) -> None:
    """Write what a page's examples print below them."""
    path = ROOT / page
    with tempfile.TemporaryDirectory() as folder:
        printed = iter(run_blocks([code for code, _ in BLOCKS.findall(path.read_text())], pathlib.Path(folder)))

    def block(match: re.Match[str]) -> str:
        text = next(printed)
        return match[0] if match[2] is None else f"```python\n{match[1]}```\n\n```text\n{text}```"

    path.write_text(BLOCKS.sub(block, path.read_text()))


if __name__ == "__main__":
    for page in PAGES:
        renew(page)
