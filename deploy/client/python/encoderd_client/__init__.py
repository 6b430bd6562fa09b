"""Client of encoderd: token ids or vectors in, hidden states, attention maps, pooled vectors,
logits or contacts out, all as NumPy arrays.

    from encoderd_client import Attention, Client, Pooling

    with Client("127.0.0.1:50051") as client:
        result = client.encode([[101, 7592, 102], [101, 102]],
                               last_hidden_state=True,
                               pooled=[Pooling.MEAN],
                               attentions=Attention(layers=[-1], heads=[0]))
        result.last_hidden_state[1]      # [2, hidden]: the second sequence, no padding
        result.pooled[0]                 # [2, dimensions]: one row per sequence
        result.attentions[0, 5].weights  # [1, 3, 3]: sequence 0, layer 5
"""

from encoderd_client._chunks import Piece
from encoderd_client.client import Client
from encoderd_client.errors import (
    AnswerError,
    Cancelled,
    DeadlineExceeded,
    EncoderdError,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Violation,
)
from encoderd_client.request import (
    Attention,
    DataType,
    Mask,
    Pooling,
    PoolingSpec,
    Priority,
    Sequence,
)
from encoderd_client.result import (
    AttentionMap,
    EncodeResult,
    HealthStatus,
    ModelInfo,
    PrecisionTrial,
    Timing,
    TokenRows,
)
from encoderd_client.selfcheck import write_selfcheck
from encoderd_client.tls import Tls

__all__ = [
    "AnswerError",
    "Attention",
    "AttentionMap",
    "Cancelled",
    "Client",
    "DataType",
    "DeadlineExceeded",
    "EncodeResult",
    "EncoderdError",
    "FailedPrecondition",
    "HealthStatus",
    "Internal",
    "InvalidArgument",
    "Mask",
    "ModelInfo",
    "NotFound",
    "PermissionDenied",
    "Piece",
    "Pooling",
    "PoolingSpec",
    "PrecisionTrial",
    "Priority",
    "ResourceExhausted",
    "Sequence",
    "Timing",
    "Tls",
    "TokenRows",
    "Unauthenticated",
    "Unavailable",
    "Violation",
    "write_selfcheck",
]
