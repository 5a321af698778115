"""The graph IR: types, variables, equations, primitives, the scalar vocabulary, the checker and the text forms."""
