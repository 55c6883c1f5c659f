"""The heap of the process: what is freed stays for the next batch, or goes back to the system.

Of glibc's allocator; with any other, nothing happens. Not for: memory of GPUs, which torch keeps by itself.
"""

from __future__ import annotations

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_KEPT = 512 << 20  # bytes free at the end of the heap; more goes back to the system
_MAPPED = (256 << 20, 32 << 20)  # bytes; larger blocks are mapped and given back. Older versions refuse the first
_USERS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> None:
    """Keep what is freed for the next batch, unless the environment already says what to do with it.

    By default glibc gives large blocks back at once, and the system has to map and clear their pages again: on a
    processor that is a quarter of the time of a network whose maps are some megabytes each. Whether it does so follows
    from what the heap looked like early on, so that the same program is fast in one process and slow in the next.
    """
    if sys.platform != "linux" or any(name in os.environ for name in _USERS):
        return
    if (set_option := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        any(set_option(_M_MMAP_THRESHOLD, size) for size in _MAPPED)
        set_option(_M_TRIM_THRESHOLD, _KEPT)


def give_back_freed_memory() -> None:
    """Give free memory back to the system."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # glibc's
        trim(0)
