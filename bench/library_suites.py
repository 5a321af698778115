"""`python -m bench.library_suites [libraries]`: libraries' own tests with fuser as `jax`, of those that pass with JAX.

A fixed sample of each test file (by a hash of `--seed` and the tests' names) runs with JAX first; what passes there runs with fuser, each
system in processes of its own. Tests are those of the source distributions, which `--sources` holds or pip brings there.
Exit status 1: a library is below `LIMIT`. A library of which JAX passes nothing is shown, not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT = 0.95
# distribution -> its version, and the folder of its tests in the source distribution
LIBRARIES = {
    "optax": ("0.2.8", "optax"),
    "flax": ("0.12.8", "tests"),
    "dm_haiku": ("0.0.17", "haiku"),
    "blackjax": ("1.7.1", "tests"),
    "numpyro": ("0.22.0", "test"),
    "distrax": ("0.1.9", "distrax"),
    "chex": ("0.1.92", "chex"),
    "einops": ("0.8.2", "einops"),
    "jmp": ("0.0.4", "jmp"),
}
# One process holds no more tests than this, so that caches of compiled programs do not fill the memory.
TESTS_PER_PROCESS = 150


def sources(library: str, folder: pathlib.Path) -> pathlib.Path:
    """The folder of a library's source distribution below `folder`, where pip brings it unless it is there."""
    version, _ = LIBRARIES[library]
    unpacked = folder / f"{library}-{version}"
    if not unpacked.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", library]
        subprocess.run([*command, "-d", str(folder), f"{library}=={version}"], check=False)
        with tarfile.open(folder / f"{library}-{version}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return unpacked


def run(system: str, place: pathlib.Path, tests: list[str], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Node id -> outcome, seconds and error text of `tests` (folders, to sample from) or, with `system` fuser, of these node ids."""
    found: dict[str, dict[str, Any]] = {}
    chosen = tests if system == "fuser" else None
    while chosen is None or chosen:
        given = tests if chosen is None else chosen[:TESTS_PER_PROCESS]
        found |= (fresh := _process(system, place, given, chosen is not None, options))
        if not fresh:
            break
        if chosen is None:
            return found
        chosen = [name for name in chosen if name not in found]
    return found


def _process(
    system: str, place: pathlib.Path, tests: list[str], exact: bool, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """One run of pytest; a test in which the process ends is "crashed", and those after it are absent."""
    with tempfile.TemporaryDirectory() as folder:
        results, wanted = pathlib.Path(folder) / "results", pathlib.Path(folder) / "wanted.json"
        wanted.write_text(json.dumps(tests if exact else None))
        files = sorted({name.partition("::")[0] for name in tests})
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "bench.suite_sample",
            "-p",
            "no:cacheprovider",
            "-q",
            "-n",
            "0",
        ]
        command += ["--import-mode=importlib", "-W", "ignore", "--continue-on-collection-errors", *files]
        own = {
            "PYTHONPATH": os.pathsep.join([str(place), str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "SUITE_SYSTEM": system,
            "SUITE_RESULTS": str(results),
            "SUITE_WANTED": str(wanted),
            "SUITE_SAMPLE": str(options.sample),
            "SUITE_SEED": options.seed,
            "SUITE_SECONDS": str(options.seconds),
            "JAX_PLATFORMS": "cpu",
            "EINOPS_TEST_BACKENDS": "numpy,jax",
        }
        done = subprocess.run(command, cwd=place, env=os.environ | own, capture_output=True, text=True)
        found: dict[str, dict[str, Any]] = {}
        for line in results.read_text().splitlines() if results.exists() else ():
            row = json.loads(line)
            if found.get(row["test"], {}).get("outcome") not in ("failed", "crashed", "late"):
                found[row["test"]] = row
        if not found:
            print(done.stdout[-3000:], done.stderr[-3000:], file=sys.stderr)
        for row in found.values():  # begun, and not ended
            if row["outcome"] == "begun":
                row |= {"outcome": "crashed", "error": done.stdout[-2000:] + done.stderr[-2000:]}
        return found


def measure(library: str, options: argparse.Namespace) -> dict[str, Any]:
    """A library's row: how many tests ran and passed with JAX, how many of these with fuser, and the others' errors."""
    place = sources(library, options.sources)
    record = options.sources / f"{library}-jax-{options.sample}{options.seed and '-'}{options.seed}.json"
    if record.exists() and not options.again:
        jax = json.loads(record.read_text())
    else:
        jax = run("jax", place, [LIBRARIES[library][1]], options)
        record.write_text(json.dumps(jax))
    passed = sorted(name for name, row in jax.items() if row["outcome"] == "passed")
    wanted = [name for name in passed if not options.test or any(part in name for part in options.test)]
    found = run("fuser", place, wanted, options)
    failures = {
        name: found.get(name, {"outcome": "not collected", "error": ""})
        for name in wanted
        if found.get(name, {}).get("outcome") != "passed"
    }
    return {
        "library": f"{library} {LIBRARIES[library][0]}",
        "sampled": len(jax),
        "jax": len(wanted),
        "fuser": len(wanted) - len(failures),
        "jax_s": sum(jax[name]["seconds"] for name in wanted),
        "fuser_s": sum(found[name]["seconds"] for name in wanted if name in found),
        "failures": failures,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.library_suites", description=__doc__.split("\n")[0])
    parser.add_argument("libraries", nargs="*", help=f"of {', '.join(LIBRARIES)} (default: all)")
    parser.add_argument(
        "--sources", type=pathlib.Path, required=True, help="folder of source distributions and of JAX's outcomes"
    )
    parser.add_argument("--sample", type=int, default=2, help="tests of each file (default: 2)")
    parser.add_argument("--seed", default="", help="any text: another sample of the tests for each")
    parser.add_argument("--seconds", type=int, default=120, help="limit of one test (default: 120)")
    parser.add_argument("--test", action="append", help="only tests with this in their name")
    parser.add_argument(
        "--again", action="store_true", help="run the tests with JAX again where its outcomes are stored"
    )
    parser.add_argument("--json", type=pathlib.Path, help="where the rows go")
    options = parser.parse_args(arguments)
    unknown = set(options.libraries) - set(LIBRARIES)
    if unknown:
        parser.error(f"no library {', '.join(sorted(unknown))}; there are: {', '.join(LIBRARIES)}")
    options.sources = options.sources.resolve()
    options.sources.mkdir(parents=True, exist_ok=True)
    rows = []
    for library in options.libraries or LIBRARIES:
        rows.append(measure(library, options))
        print(_words(rows[-1]), file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return _print(rows)


def _words(row: dict[str, Any]) -> str:
    lines = [f"{row['library']}: {row['fuser']} of {row['jax']} that JAX passes ({row['sampled']} sampled)"]
    for name, failure in row["failures"].items():
        said = [line.strip() for line in failure["error"].splitlines() if line.startswith("E ")][:2]
        lines.append(f"    {name} {failure['outcome']}: {' | '.join(said)[:300]}")
    return "\n".join(lines)


def _print(rows: list[dict[str, Any]]) -> int:
    table = Table(title="libraries' own tests")
    for head in ("library", "sampled", "JAX passes", "fuser of these", "%", "JAX s", "fuser s"):
        table.add_column(head, justify="left" if head == "library" else "right")
    for row in rows:
        share = f"{100 * row['fuser'] / row['jax']:.1f}" if row["jax"] else "-"
        cells = [str(row[key]) for key in ("library", "sampled", "jax", "fuser")]
        table.add_row(*cells, share, f"{row['jax_s']:.0f}", f"{row['fuser_s']:.0f}")
    Console().print(table)
    return int(any(row["fuser"] < LIMIT * row["jax"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
