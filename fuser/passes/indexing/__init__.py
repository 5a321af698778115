"""Passes over gathers, scatters, slices and updates."""
