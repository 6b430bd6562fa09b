"""What a call answers, as arrays and plain values.

Arrays of an answer share its memory and are read-only; copy one to change it.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import abc
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

from encoderd_client._tensors import array_from_tensor
from encoderd_client.errors import AnswerError
from encoderd_client.request import Pooling

Array = npt.NDArray[Any]


class TokenRows:
    """Rows for every token of a call. rows[i] is a view [S, width] of sequence i; `packed` is the
    whole [tokens, width], the sequences end to end."""

    def __init__(self, packed: Array, offsets: npt.NDArray[np.int64]) -> None:
        self.packed = packed
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> Array:
        sequence = range(len(self))[index]
        return self.packed[self._offsets[sequence]:self._offsets[sequence + 1]]

    def __iter__(self) -> abc.Iterator[Array]:
        return (self[sequence] for sequence in range(len(self)))

    def __repr__(self) -> str:
        return f"TokenRows({len(self)} sequences, packed {list(self.packed.shape)})"


@dataclasses.dataclass(frozen=True)
class AttentionMap:
    """The attention of one layer within one sequence."""

    heads: tuple[int, ...]
    query_rows: tuple[int, ...]
    weights: Array  # [heads, query rows, S]; every row sums to 1


@dataclasses.dataclass(frozen=True)
class Timing:
    queue_us: int  # arrival to first start
    compute_us: int  # first start to last end
    batches: int  # how many batches the call was spread over
    batch_tokens: int  # tokens of the largest of them
    layers_run: int


@dataclasses.dataclass(frozen=True)
class EncodeResult:
    """The answer to Client.encode(): what was not asked for is None or empty."""

    # [sequences + 1]; sequence i owns rows token_offsets[i]..token_offsets[i+1] of
    # TokenRows.packed.
    token_offsets: npt.NDArray[np.int64]
    last_hidden_state: Optional[TokenRows]  # [S, hidden] per sequence
    hidden_states: dict[int, TokenRows]  # by layer, never negative; [S, hidden] per sequence
    attentions: dict[tuple[int, int], AttentionMap]  # by (sequence, layer)
    pooled: list[Array]  # one per pooling asked for: [sequences or spans, dimensions]
    # Per sequence [S, vocab or labels]; [1, labels] of a model that labels whole sequences.
    logits: Optional[TokenRows]
    # One per sequence, [S - 2, S - 2]: the probability that tokens i + 1 and j + 1 are in contact.
    contacts: list[Array]
    timing: Timing
    numerics_id: str  # equal ids = equal bits for equal input
    request_id: str


class HealthStatus(enum.IntEnum):
    """grpc.health.v1.HealthCheckResponse.ServingStatus."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


@dataclasses.dataclass(frozen=True)
class PrecisionTrial:
    """What the server has measured of a precision before it chose one."""

    precision: str
    error: float  # largest 1 - cosine of a token to fp32
    tokens_per_second: float  # of one worker


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """What is served, and its limits."""

    name: str
    family: str
    server_version: str
    numerics_id: str
    weights_sha256: str
    tokenizer_sha256: str  # of tokenizer.json or vocab.txt in the model folder; "" if none
    precision: str
    isa: str
    num_layers: int
    num_heads: int
    hidden_size: int
    input_dim: int  # 0 for token models
    inputs_embeds_width: int  # of a row of ready-made vectors, whatever the model takes
    vocab_size: int
    type_vocab_size: int
    max_sequence_tokens: int
    max_request_sequences: int
    max_request_tokens: int
    max_request_bytes: int
    max_response_bytes: int
    default_pooling: Pooling
    default_normalize: bool
    outputs: tuple[str, ...]
    labels: tuple[str, ...]
    precision_trials: tuple[PrecisionTrial, ...]  # () where the server was told its precision


def result_from_message(response: Any) -> EncodeResult:
    """Raises AnswerError where the answer contradicts itself."""
    offsets = np.array(response.token_offsets, np.int64)
    if len(offsets) == 0 or offsets[0] != 0 or np.any(np.diff(offsets) < 0):
        raise AnswerError(f"token_offsets: expected to rise from 0, got {offsets.tolist()[:16]}")

    def token_rows(tensor: Any, field: str) -> TokenRows:
        packed = array_from_tensor(tensor, field)
        if packed.ndim != 2 or len(packed) != offsets[-1]:
            raise AnswerError(f"{field}: expected [{offsets[-1]}, width], got "
                              f"{list(packed.shape)}")
        return TokenRows(packed, offsets)

    def logits_rows(tensor: Any) -> TokenRows:
        rows = np.arange(len(offsets), dtype=np.int64)
        if list(tensor.shape[:1]) != [rows[-1]]:
            return token_rows(tensor, "logits")
        packed = array_from_tensor(tensor, "logits")
        if packed.ndim != 2:
            raise AnswerError(f"logits: expected [{rows[-1]}, width], got {list(packed.shape)}")
        return TokenRows(packed, rows)

    return EncodeResult(
        token_offsets=offsets,
        last_hidden_state=(token_rows(response.last_hidden_state, "last_hidden_state")
                           if response.HasField("last_hidden_state") else None),
        hidden_states={state.layer: token_rows(state.tensor, f"hidden_states[{index}]")
                       for index, state in enumerate(response.hidden_states)},
        attentions={(item.sequence, item.layer): _attention_map(item, offsets, index)
                    for index, item in enumerate(response.attentions)},
        pooled=[array_from_tensor(tensor, f"pooled[{index}]")
                for index, tensor in enumerate(response.pooled)],
        logits=(logits_rows(response.logits)
                if response.HasField("logits") else None),
        contacts=_contacts(response.contacts, offsets),
        timing=Timing(**{field.name: getattr(response.timing, field.name)
                         for field in dataclasses.fields(Timing)}),
        numerics_id=response.numerics_id,
        request_id=response.request_id,
    )


def model_from_message(response: Any) -> ModelInfo:
    fields = {field.name: getattr(response, field.name) for field in dataclasses.fields(ModelInfo)}
    fields.update(default_pooling=Pooling(response.default_pooling),
                  outputs=tuple(response.outputs), labels=tuple(response.labels),
                  precision_trials=tuple(
                      PrecisionTrial(trial.precision, trial.error, trial.tokens_per_second)
                      for trial in response.precision_trials))
    return ModelInfo(**fields)


def _contacts(tensors: Any, offsets: npt.NDArray[np.int64]) -> list[Array]:
    if len(tensors) not in (0, len(offsets) - 1):
        raise AnswerError(f"contacts: expected one for each of {len(offsets) - 1} sequences, got "
                          f"{len(tensors)}")
    arrays = []
    for index, tensor in enumerate(tensors):
        array = array_from_tensor(tensor, f"contacts[{index}]")
        inner = max(int(offsets[index + 1] - offsets[index]) - 2, 0)
        if array.shape != (inner, inner):
            raise AnswerError(f"contacts[{index}]: expected [{inner}, {inner}], got "
                              f"{list(array.shape)}")
        arrays.append(array)
    return arrays


def _attention_map(item: Any, offsets: npt.NDArray[np.int64], index: int) -> AttentionMap:
    field = f"attentions[{index}]"
    if item.sequence >= len(offsets) - 1:
        raise AnswerError(f"{field}.sequence: expected less than {len(offsets) - 1}, got "
                          f"{item.sequence}")
    weights = array_from_tensor(item.tensor, f"{field}.tensor")
    tokens = int(offsets[item.sequence + 1] - offsets[item.sequence])
    query_rows = tuple(item.query_rows) or range(tokens)  # none on the wire = all
    expected = (len(item.heads), len(query_rows), tokens)
    if weights.shape != expected:
        raise AnswerError(f"{field}.tensor: expected {list(expected)}, got {list(weights.shape)}")
    return AttentionMap(tuple(item.heads), tuple(query_rows), weights)
