"""What runs a compiled program: memory, arrays, the toolchain, the disk cache, executables and clocks.

Imports nothing of fuser but `fuser.config` and `fuser.errors`: it knows no IR.
"""
