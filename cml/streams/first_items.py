"""The first items of a stream: what training asks for before its first step, and the buffer that it begins with."""

import functools
from dataclasses import dataclass, replace
from typing import Any

from cml.data.image_sources import label_list
from cml.data.images import Size
from cml.data.input_form import AcceptedInputs, FieldNames
from cml.data.input_sources import LabelledInputs
from cml.errors import UserError
from cml.processes.exactness import Decode
from cml.streams.item_reader import Item, ItemReader
from cml.streams.labelled_stream import LabelledStream
from cml.streams.open_share import OpenShare, describe_item
from cml.streams.share_reader import Part


@dataclass
class FirstItems:
    """The first items of a stream, as many as its buffer holds, and how it goes on after them."""

    stream: LabelledStream
    reader: ItemReader
    seed: int
    values: list[Any]  # inputs of the items, up to ``buffer``; empty once training has taken them over
    items: list[Item]  # the items, with up to a chunk more
    places: list[tuple[int, int]]  # share and number of each item
    chunks: dict[int, int]  # how many chunks of each share were read
    next_share: int  # the share whose chunk is the next one
    ended: list[int]  # shares that have ended
    faults: list[str]  # what is wrong with items that were left out

    @classmethod
    def read(
        cls,
        stream: LabelledStream,
        names: FieldNames,
        accepted: AcceptedInputs,
        size: Size,
        seed: int,
        decode: Decode = "exact",
    ) -> "FirstItems":
        """Read the first items, those of all shares by turns. A stream that ends before gives all of its items."""
        every = range(stream.shares)
        open_shares = [OpenShare(stream, share, 0, seed) for share in every]
        reader: ItemReader | None = None
        items: list[Item] = []
        places: list[tuple[int, int]] = []
        chunks = dict.fromkeys(every, 0)
        faults: list[str] = []
        share = 0
        while len(items) < stream.buffer and not all(one.has_ended for one in open_shares):
            chunk = open_shares[share].read()
            describe = functools.partial(describe_item, share, shares=stream.shares)
            if reader is None and chunk:
                reader = replace(ItemReader.of(chunk[0][1], names, accepted, size, describe(0)), decode=decode)
            if reader is not None:
                read, bad = reader.read_all(chunk, describe, skip_bad=stream.skip_bad)
                items += [item for _, item in read]
                places += [(share, number) for number, _ in read]
                faults += bad
            chunks[share] += 1
            share = (share + 1) % stream.shares
        if reader is None:
            raise UserError(f"The stream gives no item: its source, {stream!r}, is empty.")
        if not items:
            raise UserError(f"No item of the stream can be read: {faults[0]}")
        ended = [share for share in every if open_shares[share].has_ended]
        values = [item.value for item in items[: stream.buffer]]
        return cls(stream, reader, seed, values, items, places, chunks, share, ended, faults)

    def labelled(self) -> LabelledInputs:
        """The items as inputs and labels. Training empties ``values``, and with them these inputs."""
        labels = label_list([item.label for item in self.items[: len(self.values)]])
        return LabelledInputs(self.reader.open(self.values), labels, self.reader.form.kind)  # type: ignore[arg-type]

    def take(self, part: Part) -> list[Item]:
        """Take the items of a process, and let go of all others."""
        own = [item for item, place in zip(self.items, self.places, strict=True) if part.holds(*place)]
        for held in (self.values, self.items, self.places):
            held.clear()
        return own
