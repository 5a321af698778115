"""Tokens: values without contents that programs for JAX pass on to say what comes first. Programs of fuser run in order."""

from __future__ import annotations

from typing import Any

from fuser.trace import tree

__all__ = ["Token", "after_all", "create_token"]


class Token:
    """A value without contents, and a tree without leaves: jitted functions take and give it."""

    def __repr__(self) -> str:
        return "Token()"

    def block_until_ready(self) -> Token:
        """This token: it is ready from the start."""
        return self


tree.register_pytree_node(Token, lambda token: ((), None), lambda aux, children: Token())


def create_token(_: object = None) -> Token:
    """A new token; the argument means nothing."""
    return Token()


def after_all(*operands: Any) -> Token:
    """A token of what comes after all of `operands`, which are tokens. TypeError for others."""
    wrong = [o for o in operands if not isinstance(o, Token)]
    if wrong:
        raise TypeError(f"after_all takes tokens, got a {type(wrong[0]).__name__}; make one with create_token")
    return Token()
