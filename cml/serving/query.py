"""A request of the service: its limits, and its body as inputs of the model."""

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from cml.data.bands import ImageFault
from cml.data.input_form import InputForm
from cml.data.open_image import is_deep_tiff, open_image


@dataclass(frozen=True)
class Limits:
    """What the service takes; beyond it, requests are answered with status 413 or 503."""

    bytes: int = 10_000_000  # of a request
    pixels: int = 25_000_000  # of an image, and of the images of a batch together
    inputs: int = 256  # texts or vectors of a request
    seconds: float = 30.0  # from the first byte of a request to its answer
    waiting: int = 1000  # requests that are read or wait
    found: int = 100  # items found for an input
    batch: int = 32  # inputs that the model embeds at a time, of several requests

    @property
    def held(self) -> int:
        """Bytes of all requests that are read or wait."""
        return 20 * self.bytes


class Refusal(Exception):
    """The fault of a client; the status of its answer, and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True, eq=False)
class Query:
    """What a request asks for."""

    inputs: Any  # N inputs of the model: [bytes of an image], texts, or an array of vectors
    k: int  # items found for each input
    within: float | None  # only items whose expected label distance is at most this
    pixels: int = 0  # of its image

    def __len__(self) -> int:
        return len(self.inputs)


class _Texts(msgspec.Struct, forbid_unknown_fields=True):
    texts: list[str]


class _Vectors(msgspec.Struct, forbid_unknown_fields=True):
    vectors: list[Any]  # of numbers, or of lists of these: the shape is that of the model's inputs


def read_query(body: bytes, kind: str, form: InputForm, limits: Limits, k: int, within: float | None) -> Query:
    """Take the body of a request as inputs; a ``Refusal`` says what is wrong with it."""
    media = kind.partition(";")[0].strip().lower()
    if media == "multipart/form-data":
        example = "curl --data-binary @photo.jpg" if form.kind == "images" else "curl --json"
        raise Refusal(415, f"Send the content itself as the body of the request, not a form, as {example} does.")
    if form.kind == "images":
        if media == "application/json":
            raise Refusal(415, "This model takes images: the body of a request is an image file.")
        return Query([body], k, within, _count_pixels(body, limits))
    inputs = _decode_texts(body) if form.kind == "texts" else _decode_vectors(body, form)
    if not 1 <= len(inputs) <= limits.inputs:
        raise Refusal(
            413 if len(inputs) else 400, f"A request may have 1 to {limits.inputs} inputs. Got {len(inputs)}."
        )
    return Query(inputs, k, within)


def _count_pixels(body: bytes, limits: Limits) -> int:
    """The pixels that the head of an image file states."""
    try:
        with open_image(body) as image:
            pixels = image.width * image.height
    except ImageFault as fault:
        if is_deep_tiff(body):  # which is read elsewhere, with a limit of its own
            return limits.pixels
        status = 413 if "limit" in str(fault) else 400
        raise Refusal(status, f"The image {fault}.") from None
    if pixels > limits.pixels:
        raise Refusal(413, f"An image may have {limits.pixels:,} pixels. Got {pixels:,}.")
    return pixels


def _decode_texts(body: bytes) -> list[str]:
    example = '{"texts": ["two dogs on a beach"]}'
    try:
        texts = msgspec.json.decode(body, type=_Texts).texts
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise Refusal(400, f"The body must be JSON such as {example}: {error}.") from None
    if any(not text.strip() for text in texts):
        raise Refusal(400, "A text is empty.")
    return texts


def _decode_vectors(body: bytes, form: InputForm) -> np.ndarray[Any, Any]:
    vectors: np.ndarray[Any, Any]
    example = f'{{"vectors": [..]}}, each of shape {form.shape}'
    try:
        values = msgspec.json.decode(body, type=_Vectors).vectors
        with np.errstate(over="ignore"):  # infinity is refused by the model
            # None is a missing number, NaN; whole numbers are those of tokens
            vectors = np.array(values, np.int64 if form.whole else np.float64)
            vectors = vectors if form.whole else vectors.astype(np.float32)
    except (msgspec.DecodeError, RecursionError, ValueError, TypeError, OverflowError) as error:
        raise Refusal(400, f"The body must be JSON such as {example}: {error}.") from None
    if len(vectors) and vectors.shape[1:] != tuple(form.shape):
        raise Refusal(400, f"The body must be JSON such as {example}. Got an array of shape {vectors.shape}.")
    return vectors
