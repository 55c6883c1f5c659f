"""A file that an interrupted job goes on writing."""

import io
import os
from pathlib import Path

from cml.errors import DataError
from cml.storage.atomic import write_all


class GrowingFile(io.FileIO):
    """A file that only grows; bytes after the recorded size, which an interrupted job left, are dropped."""

    def __init__(
        self,
        path: Path,
        size: int,  # the recorded size in bytes
    ) -> None:
        super().__init__(path, "a+")
        actual = os.fstat(self.fileno()).st_size
        if actual < size:
            self.close()
            raise DataError(f"{path} has {actual} bytes, but {size} were recorded; delete {path.parent} to start over.")
        self.truncate(size)

    def append(self, content: bytes) -> None:
        """Write all bytes at the end."""
        write_all(self.fileno(), content)

    def sync(self) -> int:  # the size in bytes, to be recorded
        """Force everything to the disk."""
        os.fsync(self.fileno())
        return os.fstat(self.fileno()).st_size
