"""The Kernel: the loop program of one fusion group, shared by the backends that generate loops."""
