"""How kernels run as C loops: one module a loop form or loop transformation; `emit` chooses."""
