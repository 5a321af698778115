"""Checks that an export can do without, each at the caller's own risk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DisabledSafetyCheck:
    """A check that is not made for an exported function; `word` is how files name it."""

    word: str

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Let the function be called on platforms that it was not exported for."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Let the function call the foreign function `target_name` (fuser.ffi); "ALL" for any."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The foreign function that may be called; None for another check."""
        return self.word.removeprefix("custom_call:") if self.word.startswith("custom_call:") else None

    def __str__(self) -> str:
        return self.word
