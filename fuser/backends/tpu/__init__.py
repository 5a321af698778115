"""Pallas kernels and XLA on Google's TPUs. JAX and libtpu, the extra `[tpu]`, are imported only when a program runs."""

from fuser.backends.tpu.backend import TPU

BACKEND = TPU()
