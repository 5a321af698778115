"""Kernels to take away: a folder that needs no fuser, with the texts, what launches them, and a test with its data."""

from fuser.takeaway.folder import KernelFolder, export_kernels

__all__ = ["KernelFolder", "export_kernels"]
