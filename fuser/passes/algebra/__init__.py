"""Algebraic simplification: rules as data, and the pass that tries them."""
