"""Partition: an optimised graph in, a Plan of fusion groups out; the seam that all backends share."""
