"""Memory that has run out, and memory that is freed: told from other errors, and kept for the next use.

Without it ``test_memory_of_a_batch_serves_the_next`` in tests/processes/test_heap.py fails. Eight passes of
efficientnet-lite0 over an image of 640 pixels (the work of tests/benchmarks/heap.py) took 8.4 s of processor time
instead of 10.1 s, with 0.13 million page faults instead of 0.44 to 0.66 million; small-cnn gains nothing measurable.
"""

import ctypes
import errno
import os
import re
import sys

_TEXTS = re.compile(
    r"allocate memory(?! in static TLS)"  # torch's allocator, and the system's words for ENOMEM
    r"|not enough memory"  # torch's allocator on Windows
    r"|out of memory"  # CUDA, Pillow
    r"|std::bad_alloc|^bad allocation"  # any library in C++
    r"|could not (create|execute) a (primitive|memory object)(?! descriptor)"  # oneDNN
    r"|STATUS_ALLOC_FAILED"  # cuBLAS, cuDNN
    r"|failed to map segment",  # the system, of a library that is imported
    re.IGNORECASE,
)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that the memory of the processor or of a device is full."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, without importing it
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError | ImportError) and _TEXTS.search(str(error)) is not None


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_KEPT = 512 << 20  # bytes free at the end of the heap; more returns to the system
_MAPPED = (256 << 20, 32 << 20)  # bytes; larger blocks are mapped and returned. Older versions refuse the first
_USERS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> None:
    """Keep freed memory for the next batch, unless environment variables of glibc say otherwise.

    Depending on the heap's early state, glibc may return large blocks at once; a network on a CPU whose maps have some
    megabytes each then maps and clears their pages again for every batch.
    """
    if sys.platform != "linux" or any(name in os.environ for name in _USERS):
        return
    if (set_option := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        for size in _MAPPED:
            if set_option(_M_MMAP_THRESHOLD, size):
                break
        set_option(_M_TRIM_THRESHOLD, _KEPT)


def give_back_freed_memory() -> None:
    """Return free memory to the system."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # glibc's
        trim(0)
