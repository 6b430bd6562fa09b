"""Answers that come in pieces: what a stream may contain, and putting it together.

The server is trusted in nothing: no more memory is taken than has come, whatever the head claims.
"""

from __future__ import annotations

import dataclasses
import math
from collections import abc
from typing import Any, Optional

from encoderd_client._tensors import element_bytes
from encoderd_client.errors import AnswerError


@dataclasses.dataclass(frozen=True)
class Piece:
    """A stretch of one tensor's bytes; those of one tensor come in order, without gaps."""

    # "last_hidden_state", "hidden_states[1]", "attentions[0]", "pooled[0]", "logits",
    # "contacts[0]".
    field: str
    shape: tuple[int, ...]  # of the whole tensor
    dtype: int  # a DataType
    offset: int  # bytes
    data: bytes


@dataclasses.dataclass
class _Part:
    field: str
    tensor: Any
    total: int  # bytes when complete
    come: int = 0


class Chunks:
    """Checks the messages of a stream as they come. Raises AnswerError where they contradict each
    other, or announce more than `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._room = max_bytes
        self.head: Optional[Any] = None  # EncodeResponse without data; with the timing at the end
        self._parts: list[_Part] = []
        self._over = False

    def add(self, chunk: Any) -> Optional[Piece]:
        """The next message; a piece if it is one."""
        kind = chunk.WhichOneof("part")
        if self._over or kind is None or (kind == "head") != (self.head is None):
            raise AnswerError(f"EncodeChunk: {kind or 'nothing'} where it cannot be")
        if kind == "head":
            self.head = chunk.head
            for field, tensor in tensors_of(chunk.head):
                self._announce(field, tensor)
            return None
        if kind == "timing":
            self.head.timing.CopyFrom(chunk.timing)
            self._over = True
            return None
        return self._piece(chunk.piece)

    def finish(self) -> None:
        """After the end of the stream: everything has come."""
        if not self._over:
            raise AnswerError("the stream ended without its timing")
        for part in self._parts:
            if part.come != part.total:
                raise AnswerError(f"{part.field}: expected {part.total} bytes, got {part.come}")

    def _announce(self, field: str, tensor: Any) -> None:
        shape = tuple(tensor.shape)
        if tensor.data or any(length < 0 for length in shape):
            raise AnswerError(f"{field}: expected a shape alone, got {list(shape)} and "
                              f"{len(tensor.data)} bytes")
        total = math.prod(shape) * element_bytes(tensor, field)
        if total > self._room:
            raise AnswerError(f"{field}: the answer has more bytes than are accepted")
        self._room -= total
        self._parts.append(_Part(field, tensor, total))

    def _piece(self, piece: Any) -> Piece:
        if piece.tensor >= len(self._parts):
            raise AnswerError(f"a piece is of tensor {piece.tensor}, the head has "
                              f"{len(self._parts)}")
        part = self._parts[piece.tensor]
        end = piece.offset + len(piece.data)
        if piece.offset != part.come or not piece.data or end > part.total:
            raise AnswerError(f"{part.field}: expected a piece from {part.come} up to "
                              f"{part.total}, got one from {piece.offset} to {end}")
        part.come = end
        return Piece(part.field, tuple(part.tensor.shape), part.tensor.dtype, piece.offset,
                     piece.data)


def tensors_of(response: Any) -> abc.Iterator[tuple[str, Any]]:
    """The tensors of an EncodeResponse in the order in which pieces count them."""
    if response.HasField("last_hidden_state"):
        yield "last_hidden_state", response.last_hidden_state
    for index, state in enumerate(response.hidden_states):
        yield f"hidden_states[{index}]", state.tensor
    for index, item in enumerate(response.attentions):
        yield f"attentions[{index}]", item.tensor
    for index, tensor in enumerate(response.pooled):
        yield f"pooled[{index}]", tensor
    if response.HasField("logits"):
        yield "logits", response.logits
    for index, tensor in enumerate(response.contacts):
        yield f"contacts[{index}]", tensor


def assemble(messages: abc.Iterable[Any], max_bytes: int) -> Any:
    """The EncodeResponse that the messages are the pieces of."""
    chunks = Chunks(max_bytes)
    data: dict[str, list[bytes]] = {}
    for message in messages:
        piece = chunks.add(message)
        if piece is not None:
            data.setdefault(piece.field, []).append(piece.data)
    chunks.finish()
    for field, tensor in tensors_of(chunks.head):
        tensor.data = b"".join(data.pop(field, ()))
    return chunks.head
