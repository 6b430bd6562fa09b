"""What a call asks for, and how it is written to the wire."""

from __future__ import annotations

import dataclasses
import enum
from collections import abc
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from encoderd_client._tensors import DataType, fill_tensor

__all__ = ["Attention", "DataType", "Mask", "Pooling", "PoolingSpec", "Priority", "Sequence"]


class Pooling(enum.IntEnum):
    """How the rows of a sequence, or of a span, become one vector."""

    MODEL_DEFAULT = 0  # what the model folder says (modules.json), else MEAN
    CLS = 1
    MEAN = 2
    MAX = 3
    POOLER = 4  # the checkpoint's own pooler; FailedPrecondition if it has none


class Priority(enum.IntEnum):
    INTERACTIVE = 1
    BULK = 2


@dataclasses.dataclass(frozen=True)
class Mask:
    """What each token may see. Parts are ANDed; 1 or True = may be seen (the reverse of torch's
    key_padding_mask). Row = query, column = key. A row that may see nothing attends evenly to its
    whole sequence. Hidden tokens are still computed and returned; pooling skips them.
    """

    keys: Optional[npt.ArrayLike] = None  # [S]
    pairs: Optional[npt.ArrayLike] = None  # [S, S]
    head_pairs: Optional[npt.ArrayLike] = None  # [num_heads, S, S]
    causal: bool = False
    segment_ids: Optional[npt.ArrayLike] = None  # [S]; a token sees only its own segment


@dataclasses.dataclass(frozen=True)
class Sequence:
    """One input of S tokens: exactly one of input_ids and inputs_embeds, never padded."""

    input_ids: Optional[npt.ArrayLike] = None  # [S] integers
    # [S, inputs_embeds_width]. For token models: replaces the word embedding, before positions,
    # types and norm. float16 and bfloat16 are sent as they are, other numbers as float32.
    inputs_embeds: Optional[npt.ArrayLike] = None
    mask: Optional[Mask] = None  # absent = everything visible
    token_type_ids: Optional[npt.ArrayLike] = None  # [S]; absent = all 0
    position_ids: Optional[npt.ArrayLike] = None  # [S]; absent = the model's own rule
    # Rows [begin, end). If given, pooled outputs have a row per span instead of one per sequence.
    spans: abc.Iterable[tuple[int, int]] = ()


@dataclasses.dataclass(frozen=True)
class Attention:
    """Which attention maps to return. Layers 0..num_layers-1, negative from the end; an empty
    list = all."""

    layers: abc.Iterable[int] = ()
    heads: abc.Iterable[int] = ()
    query_rows: abc.Iterable[int] = ()


@dataclasses.dataclass(frozen=True)
class PoolingSpec:
    """One pooled output. A plain Pooling means PoolingSpec(kind)."""

    kind: Pooling = Pooling.MODEL_DEFAULT
    normalize: Optional[bool] = None  # L2; None = what the model folder says, else not
    layer: Optional[int] = None  # as in hidden_states; None = the last
    dimensions: int = 0  # 0 = all; else the first so many, re-normalised if normalize


# A row of ids, an array [S, input_dim], or a Sequence with more to say.
AnySequence = Union[Sequence, npt.ArrayLike]
AnyPooling = Union[Pooling, PoolingSpec]


def fill_sequence(message: Any, sequence: AnySequence, field: str) -> None:
    """Writes one sequence into its message. Raises TypeError or ValueError, naming `field`, for
    what the wire cannot carry; whether the model accepts it is the server's to say."""
    if not isinstance(sequence, Sequence):
        sequence = _plain_sequence(sequence, field)
    tokens = 0
    if sequence.input_ids is not None:
        _extend_ids(message.input_ids, sequence.input_ids, f"{field}.input_ids")
        tokens = len(message.input_ids)
    if sequence.inputs_embeds is not None:
        fill_tensor(message.inputs_embeds, sequence.inputs_embeds, f"{field}.inputs_embeds")
        tokens = message.inputs_embeds.shape[0] if message.inputs_embeds.shape else 0
    if sequence.token_type_ids is not None:
        _extend_ids(message.token_type_ids, sequence.token_type_ids, f"{field}.token_type_ids")
    if sequence.position_ids is not None:
        _extend_ids(message.position_ids, sequence.position_ids, f"{field}.position_ids")
    if sequence.mask is not None:
        _fill_mask(message.mask, sequence.mask, tokens, f"{field}.mask")
    for begin, end in sequence.spans:
        message.spans.add(begin=begin, end=end)


def fill_pooling(message: Any, pooling: AnyPooling) -> None:
    spec = pooling if isinstance(pooling, PoolingSpec) else PoolingSpec(pooling)
    message.kind = spec.kind
    message.dimensions = spec.dimensions
    if spec.normalize is not None:
        message.normalize = spec.normalize
    if spec.layer is not None:
        message.layer = spec.layer


def fill_attention(message: Any, attention: Attention) -> None:
    message.SetInParent()  # an empty message asks for every map
    message.layers.extend(attention.layers)
    message.heads.extend(attention.heads)
    message.query_rows.extend(attention.query_rows)


def _plain_sequence(values: npt.ArrayLike, field: str) -> Sequence:
    array = np.asarray(values)
    if array.ndim == 1 and (array.dtype.kind in "iu" or array.size == 0):
        return Sequence(input_ids=array)
    if array.ndim == 2:
        return Sequence(inputs_embeds=array)
    raise TypeError(f"{field}: expected a row of integer ids or an array [S, input_dim], got "
                    f"shape {list(array.shape)} of {array.dtype}")


def _extend_ids(repeated: Any, values: npt.ArrayLike, field: str) -> None:
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size > 0):
        raise TypeError(f"{field}: expected [S] integers, got shape {list(array.shape)} of "
                        f"{array.dtype}")
    bounds = np.iinfo(np.int32)
    for index in np.flatnonzero((array < bounds.min) | (array > bounds.max))[:1]:
        raise ValueError(f"{field}[{index}]: {array[index]} does not fit int32")
    repeated.extend(array.tolist())


def _fill_mask(message: Any, mask: Mask, tokens: int, field: str) -> None:
    message.SetInParent()
    message.causal = mask.causal
    if mask.keys is not None:
        message.keys = _mask_bytes(mask.keys, (tokens,), f"{field}.keys")
    if mask.pairs is not None:
        message.pairs = _mask_bytes(mask.pairs, (tokens, tokens), f"{field}.pairs")
    if mask.head_pairs is not None:
        heads = np.shape(mask.head_pairs)[:1]
        message.head_pairs = _mask_bytes(mask.head_pairs, (*heads, tokens, tokens),
                                         f"{field}.head_pairs")
    if mask.segment_ids is not None:
        _extend_ids(message.segment_ids, mask.segment_ids, f"{field}.segment_ids")


def _mask_bytes(values: npt.ArrayLike, shape: tuple[int, ...], field: str) -> bytes:
    """One byte per value. The shape is checked here because it is lost on the wire, where a mask
    with its axes in another order would be taken without complaint."""
    array = np.asarray(values)
    if array.shape != shape:
        raise ValueError(f"{field}: expected shape {list(shape)}, got {list(array.shape)}")
    if array.dtype.kind not in "biu":
        raise TypeError(f"{field}: expected booleans or integers 0 and 1, got {array.dtype}")
    if array.size > 0 and not 0 <= array.min() <= array.max() <= 255:
        raise ValueError(f"{field}: expected 0 and 1, got values from {array.min()} to "
                         f"{array.max()}")
    return array.astype(np.uint8).tobytes()
