"""Tells a full memory from other errors: torch and oneDNN report it as a ``RuntimeError`` like any other."""

import errno
import re

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
