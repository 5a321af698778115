"""The report's opening, in plain words: what was done, where the time goes, how near the limit, what was not fused.

In: a profile. Out: pairs of a heading and a sentence or two; names stand in `backticks`. Text and HTML show the same.
"""

from __future__ import annotations

from collections import Counter

from fuser.report.data import KernelProfile, ProgramProfile
from fuser.report.units import bandwidth, count, flop_rate, percent, seconds, size

CACHED = 1.02  # above this fraction of the copy bandwidth the arrays cannot all come from memory


def summary(profile: ProgramProfile) -> tuple[tuple[str, str], ...]:
    """Headings and sentences, in the order in which a reader asks."""
    if not profile.timed:
        return (
            ("What would run", _work(profile)),
            ("What it moves", f"{_moved(profile)}."),
            ("What was not fused", _refused(profile)),
            ("What planning cost", f"{seconds(profile.compile_seconds)}, before the backend's own compiler."),
        )
    return (
        ("What ran", _work(profile)),
        ("Where the time goes", _time(profile)),
        ("How near the limit", _limit(profile)),
        ("What was not fused", _refused(profile)),
        ("What compiling cost", _compiling(profile)),
    )


def _work(profile: ProgramProfile) -> str:
    machine = profile.machine
    kinds = Counter(kernel.kind for kernel in profile.kernels)
    detail = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    made = f"{count(profile.operations, 'operation')} in {count(len(profile.kernels), 'kernel')}"
    cores = f", {count(machine.cores, 'core')}" if machine.cores else ""
    return (
        f"`{profile.name}` does {made}{f' ({detail})' if detail else ''}, with "
        f"{count(profile.launches, 'launch')} per call, through the {machine.backend} backend on {machine.name}{cores}. "
        f"Its arrays take at most {size(profile.peak_bytes)} at a time."
    )


def _time(profile: ProgramProfile) -> str:
    call = (
        f"A call takes {seconds(profile.median_seconds)} "
        f"(median of {count(profile.repeats, 'run')}; the best took {seconds(profile.min_seconds)})."
    )
    total = profile.median_seconds
    if not profile.kernels or total <= 0:
        return call
    slowest = sorted(profile.kernels, key=lambda kernel: -kernel.median_seconds)[:3]
    shares = ", ".join(f"`{kernel.name}` {percent(kernel.median_seconds / total)}" for kernel in slowest)
    between = profile.between_seconds
    return f"{call} By kernel: {shares}. Between kernels pass {seconds(between)} ({percent(between / total)})."


def _limit(profile: ProgramProfile) -> str:
    machine, moved = profile.machine, _moved(profile)
    if machine.copy_bandwidth <= 0:
        return f"{moved}, at {bandwidth(profile.achieved_bandwidth)}. This machine's copy bandwidth was not measured."
    fraction = profile.fraction_of_bandwidth
    rate = (
        f"{moved}, at {bandwidth(profile.achieved_bandwidth)}: {percent(fraction)} of the "
        f"{bandwidth(machine.copy_bandwidth)} that a plain copy reaches here."
    )
    if fraction > CACHED:
        rate += " More than 100 % means that the arrays fit in a cache."
    return rate + _headroom(profile)


def _moved(profile: ProgramProfile) -> str:
    moved = f"A call moves {size(profile.planned_bytes)}"
    if profile.planned_bytes <= profile.ideal_bytes:
        moved += ", no more than it must"
    elif profile.ideal_bytes > 0:
        moved += f" where {size(profile.ideal_bytes)} would do ({profile.planned_bytes / profile.ideal_bytes:.2f}×)"
    return moved


def _headroom(profile: ProgramProfile) -> str:
    """The kernel with most time to win, if that is a tenth of the call or more."""

    def lost(kernel: KernelProfile) -> float:
        return kernel.median_seconds - kernel.limit_seconds(profile.machine)

    kernel = max(profile.kernels, key=lost, default=None)
    if kernel is None or lost(kernel) < 0.1 * profile.median_seconds:
        return ""
    least = kernel.limit_seconds(profile.machine)
    if kernel.limit(profile.machine) == "arithmetic":
        roof = f"at {flop_rate(profile.machine.peak_flops)}"
    else:
        roof = "at copy bandwidth"
    return f" Most is to be won in `{kernel.name}`: {seconds(kernel.median_seconds)} now, {seconds(least)} {roof}."


def _refused(profile: ProgramProfile) -> str:
    if not profile.refused:
        return "Nothing: every merge that was tried was made."
    reasons = Counter(refusal.reason for refusal in profile.refused)
    (reason, number), *others = reasons.most_common()
    merges = f"{count(len(profile.refused), 'merge')} {'was' if len(profile.refused) == 1 else 'were'} refused"
    if not others:
        return f"{merges}: {reason}."
    if number == 1:
        return f"{merges}, each for a reason of its own (listed below)."
    return f"{merges} for {len(reasons)} reasons (listed below), most often ({number}×): {reason}."


def _compiling(profile: ProgramProfile) -> str:
    total = profile.compile_seconds
    generated = [kernel for kernel in profile.kernels if kernel.generated]
    if not generated:
        cache = "no kernel was generated."
    else:
        hits = sum(kernel.cache_hit for kernel in generated)
        cache = f"{hits} of {count(len(generated), 'generated kernel')} came from the disk cache."
    if not profile.stages or total <= 0:
        return cache.capitalize()
    longest = max(profile.stages, key=lambda stage: stage.seconds)
    share = percent(longest.seconds / total)
    return f"{seconds(total)} once, before the first call, {share} of it in `{longest.name}`; {cache}"
