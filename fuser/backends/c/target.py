"""The machine that plans for CPUs count with: one core's share, as a kernel's arithmetic and its bytes grow alike with cores."""

from __future__ import annotations

from fuser.ir.target import CORE

TARGET = CORE
