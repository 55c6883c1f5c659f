"""``LabelledStream``: items with labels that are read from start to end, in one share or in several side by side."""

import glob
import inspect
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset

from cml.errors import UserError
from cml.streams.open_share import read_pass
from cml.streams.tar_shards import read_shard, without_marks

MOST_SHARES = 16  # that are open at a time, unless ``shares`` says otherwise
_BUFFER = 1000


class LabelledStream:
    """Items with labels that ``cml.fit`` reads from start to end, and shuffles in a buffer.

    A pass reads every item once. A training that needs more items begins another pass, before which ``set_epoch`` of
    the source is called, if it has one. ``cml.fit`` makes a stream with the defaults of an iterable data set.

    A stream is iterable: ``list(itertools.islice(stream, 10_000))`` lists its first items, for ``tune`` and other
    options that need all items in memory.

    Args:
        source: One of:

            - tar files in the form of WebDataset, as paths, or as one pattern such as ``"shards/*.tar"``. The members
              ``KEY.jpg``, ``KEY.cls`` and ``KEY.json`` make an item with the fields ``jpg``, ``cls`` and, for each
              entry of the JSON object, ``json.NAME``. Texts (``txt``), arrays (``npy``) and all formats of images are
              read as well; the order of the files is drawn anew for each pass;
            - a Hugging Face data set that was loaded with ``streaming=True``;
            - a torch ``IterableDataset``, such as ``webdataset.WebDataset``, or any other iterable that can be iterated
              over again;
            - a function that returns a new iterator at each call, also one of (share, shares) that returns the items of
              one of several shares.

            Items are tuples (input, label), or mappings with named fields.
        buffer: Items in the buffer, from which batches are drawn at random. The constants of the loss, the names of
            classes and the standardisation of vectors are computed from this many items at the start of the stream.
        shares: Shares that are read side by side, by up to as many data workers. By default 16, or the number of shards
            if there are fewer; 1 for a source without shards. A torch ``IterableDataset`` that splits itself by
            ``torch.utils.data.get_worker_info`` sees this number as ``num_workers``.
        skip_bad: Leave out items whose input cannot be read, such as damaged images, and vectors of another length or
            with numbers that are not finite. The first ones are said with their reasons, and how many there are at the
            end of each pass. By default, the first one is an error. What the source itself fails on, and labels that do
            not fit the label distance, remain errors.

    Raises:
        UserError: The source can be read only once, or is no source of items; or a number is out of range.

    Example:
        >>> import numpy as np
        >>> def measurements():
        ...     rng = np.random.default_rng(0)
        ...     for _ in range(500):
        ...         row = rng.normal(size=3)
        ...         yield row, row.sum()
        >>> stream = cml.LabelledStream(measurements, buffer=200)
        >>> cml.fit(stream, steps=20, sampler="random(batch_size=50)", workers=0, quiet=True)
        Model(none, 3 numbers -> 128 numbers, L2-normalised)
    """

    def __init__(
        self,
        source: Any,  # noqa: ANN401 - the kinds listed above
        *,
        buffer: int = _BUFFER,
        shares: int | None = None,
        skip_bad: bool = False,
    ) -> None:
        for name, value in (("buffer", buffer), ("shares", 1 if shares is None else shares)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"{name!r} must be a whole number of at least 1. Got {value!r} instead.")
        self.buffer, self.skip_bad = buffer, skip_bad
        self._paths = _list_tars(source)
        self._source = source
        self._takes_share = self._paths is None and _takes_share(source)
        _check_source(source, self._paths)
        shards = getattr(source, "num_shards", 1) if self._paths is None else len(self._paths)
        if self._takes_share and shares is None:
            raise UserError("A function of (share, shares) needs their number: cml.LabelledStream(function, shares=8).")
        self.shares = min(shards, MOST_SHARES) if shares is None else shares
        if self._paths is not None and self.shares > shards:
            raise UserError(f"Each of the 'shares' needs a tar file, but there are {shards}. Got shares={shares}.")

    def __repr__(self) -> str:
        what = f"{len(self._paths)} tar files" if self._paths is not None else type(self._source).__name__
        return f"LabelledStream({what}, buffer={self.buffer}, shares={self.shares})"

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the items of the first pass, those of all shares by turns, with images as files or arrays."""
        return map(without_marks, read_pass(self))

    def read_in_order(self) -> Iterator[Any]:
        """Read the items of one pass as the source gives them: tar files in their order, shares by turns."""
        return read_pass(self) if self._paths is None else chain.from_iterable(map(read_shard, self._paths))

    @property
    def is_known_again(self) -> bool:
        """Whether ``describe`` tells the items from those of another source."""
        return self._paths is not None

    def describe(self) -> list[str]:
        """Describe the source: tar files by name, size and time of change, another one by its type."""
        if self._paths is None:
            return [repr(self)]
        stats = [(path, path.stat()) for path in self._paths]
        return [f"{path.absolute()} {stat.st_size} {stat.st_mtime_ns}" for path, stat in stats]

    @property
    def features(self) -> Any:  # noqa: ANN401 - of a Hugging Face data set
        """The types of the columns of a Hugging Face data set; None if they are not known."""
        return getattr(self._source, "features", None)

    def open_share(self, share: int, epoch: int, seed: int) -> Iterator[Any]:
        """Begin a pass over one share.

        Args:
            share: Its number, from 0. What the source asks ``torch.utils.data.get_worker_info``, also later, the caller
                answers.
            epoch: The number of the pass, from 0.
            seed: Draws the order of tar files.

        Returns:
            An iterator over the items of the share.
        """
        if self._paths is not None:
            order = np.random.default_rng((seed, epoch)).permutation(len(self._paths))[share :: self.shares]
            return chain.from_iterable(read_shard(self._paths[number]) for number in order.tolist())
        if callable(self._source) and not hasattr(self._source, "__iter__"):
            return iter(self._source(share, self.shares) if self._takes_share else self._source())
        if hasattr(self._source, "set_epoch"):
            self._source.set_epoch(epoch)
        return iter(self._source)


def as_stream(source: Any) -> LabelledStream:  # noqa: ANN401 - a stream or its source
    """The stream itself, or one with the defaults."""
    return source if isinstance(source, LabelledStream) else LabelledStream(source)


def is_stream(source: Any) -> bool:  # noqa: ANN401 - anything
    """Whether a source of items can only be read from start to end."""
    if isinstance(source, LabelledStream | IterableDataset):
        return True
    if isinstance(source, str | bytes | Path) or hasattr(source, "__dataframe__") or hasattr(source, "batch_sampler"):
        return False
    return isinstance(source, Iterable) and not hasattr(source, "__len__") and not hasattr(source, "__array__")


def _list_tars(source: Any) -> list[Path] | None:  # noqa: ANN401 - anything
    """The tar files that a pattern or a list names; None for another source."""
    if isinstance(source, str | Path):
        names = sorted(glob.glob(str(source)))
        if not names:
            raise UserError(f"No file fits {str(source)!r}: a stream of files takes tar files, such as 'shards/*.tar'.")
    elif isinstance(source, Sequence) and source and all(isinstance(name, str | Path) for name in source):
        names = [str(name) for name in source]
    else:
        return None
    for name in names:
        if not Path(name).is_file():
            raise UserError(f"The tar file {name} does not exist.")
    return [Path(name) for name in names]


def _takes_share(source: Any) -> bool:  # noqa: ANN401 - anything
    """Whether a source is a function of (share, shares)."""
    if not callable(source) or hasattr(source, "__iter__"):
        return False
    try:
        parameters = inspect.signature(source).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    needed = sum(one.kind in kinds and one.default is one.empty for one in parameters)
    if needed not in (0, 2):
        raise UserError(f"A function of a stream takes nothing, or (share, shares). Got one of {needed} parameters.")
    return needed == 2


def _check_source(source: Any, paths: list[Path] | None) -> None:  # noqa: ANN401 - anything
    """Refuse what is no source of items, and what can be read only once."""
    if isinstance(source, Iterator):
        raise UserError(
            f"A stream is read again and again, but a {type(source).__name__} can be read only once: give the function "
            "that makes it, cml.LabelledStream(function), or read it into a list, list(...)."
        )
    is_source = callable(source) or hasattr(source, "__iter__")
    if paths is None and (isinstance(source, LabelledStream) or not is_source):
        raise UserError(
            "The source of a stream must be tar files, an iterable or a function that returns an iterator. "
            f"Got {type(source).__name__} instead."
        )
