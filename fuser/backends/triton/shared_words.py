"""Text of kernels whose programs have words of 32 bits of their own, which their threads add to and compare by atomics.

Where a GPU takes PTX they lie in shared memory, of which a program asks for BYTES at most; elsewhere, and in Triton's interpreter, in an array. What
comes of words does not depend on where they lie, as long as it does not depend on the order of atomics. Between setting words, atomics on them and
reading them stands `all_threads`. An element's operation is done by each thread that holds it, so that blocks have as many elements as threads, or more.
"""

from __future__ import annotations

BYTES = 48 << 10  # of shared memory that a kernel may have without asking for more when it is loaded

# PTX: $0 is a result, $1 an address in shared memory; without the last operand nothing is done, and the result is 0. `bar.sync` orders what threads have
# done to shared memory before it; atomics are relaxed, and one word's are in one order, which is all that is asked of them between two of these.
WAIT = "bar.sync 0; mov.u32 $0, 0;"
SET = "{ .reg .pred live; setp.ne.s32 live, $3, 0; mov.u32 $0, 0; @live st.shared.u32 [$1], $2; }"
READ = "{ .reg .pred live; setp.ne.s32 live, $2, 0; mov.u32 $0, 0; @live ld.shared.u32 $0, [$1]; }"
ATOMICS = {"add": "add.u32", "max": "max.s32", "or": "or.b32"}


def atomic(name: str) -> str:
    """PTX that combines a word with $2, and gives what it was before."""
    return f"{{ .reg .pred live; setp.ne.s32 live, $3, 0; mov.u32 $0, 0; @live atom.shared.{ATOMICS[name]} $0, [$1], $2; }}"


def assembly(words: int) -> str:
    """PTX that gives the address of so many words in shared memory; a kernel has it once."""
    assert 4 * words <= BYTES, f"{words} words"
    return f"{{\n.shared .align 16 .b8 program_words[{4 * words}];\nmov.u32 $0, program_words;\n}}"


_ATOMIC = '''

@triton.jit
def NAME_word(base, words, index, value, inside, PTX: tl.constexpr):
    """What some words were before."""
    if PTX:
        live = inside.to(tl.int32)
        old = tl.inline_asm_elementwise("ATOMIC", "=&r,r,r,r", [base + 4 * index, value, live], dtype=tl.int32, is_pure=False, pack=1)
    else:
        old = tl.atomic_NAME(words + index, value, mask=inside, sem="relaxed")
    return old
'''
_WORDS = '''
@triton.jit
def shared_words(ASSEMBLY: tl.constexpr, PTX: tl.constexpr):
    """The address of the program's words in shared memory."""
    if PTX:
        base = tl.inline_asm_elementwise(ASSEMBLY, "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    else:
        base = 0
    return base


@triton.jit
def all_threads(PTX: tl.constexpr):
    """What the program's threads have done to words is done."""
    if PTX:
        tl.inline_asm_elementwise("WAIT", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    else:
        tl.debug_barrier()


@triton.jit
def set_word(base, words, index, value, inside, PTX: tl.constexpr):
    if PTX:
        live = inside.to(tl.int32)
        tl.inline_asm_elementwise("SET", "=&r,r,r,r", [base + 4 * index, value, live], dtype=tl.int32, is_pure=False, pack=1)
    else:
        tl.store(words + index, value, mask=inside)


@triton.jit
def word_at(base, words, index, inside, PTX: tl.constexpr):
    """Words, 0 outside."""
    if PTX:
        live = inside.to(tl.int32)
        word = tl.inline_asm_elementwise("READ", "=&r,r,r", [base + 4 * index, live], dtype=tl.int32, is_pure=False, pack=1)
    else:
        word = tl.where(inside, tl.atomic_or(words + index, index * 0, mask=inside, sem="relaxed"), 0)  # caches do not see atomics
    return word
'''
TEXT = _WORDS.replace('"WAIT"', f'"{WAIT}"').replace('"SET"', f'"{SET}"').replace('"READ"', f'"{READ}"') + "".join(
    _ATOMIC.replace('"ATOMIC"', f'"{atomic(name)}"').replace("NAME", name) for name in ATOMICS
)
