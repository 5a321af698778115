"""Loops and branches on values, compiled whole: a function's source, rewritten so that its `while`, `for` and `if` can be staged."""
