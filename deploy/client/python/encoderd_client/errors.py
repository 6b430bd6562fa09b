"""What a call can fail with: one exception per status code of the contract.

The details that the server sends (google.rpc.ErrorInfo, BadRequest, RetryInfo) are attributes, so
that a program never has to read the message.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2


@dataclasses.dataclass(frozen=True)
class Violation:
    """One fault of a request."""

    field: str  # the path in the request: "sequences[2].input_ids[17]"
    description: str  # what, expected, got
    # Stable name, as EncoderdError.reason; "" where the installed googleapis-common-protos is too
    # old to know it.
    reason: str = ""


class EncoderdError(Exception):
    """A call that was refused or failed.

    code:        the gRPC status code.
    message:     the server's text.
    reason:      stable name of the cause, such as "TOKEN_OUT_OF_RANGE"; "" if none was sent.
    metadata:    further facts about the cause, as sent.
    violations:  the faults of the request, at most 16.
    retry_delay: seconds after which a new try makes sense; None if the server named none.
    request_id:  the name of the call in the server's log; "" if none was sent.
    """

    def __init__(self, message: str, *, code: grpc.StatusCode, reason: str = "",
                 metadata: Optional[dict[str, str]] = None,
                 violations: tuple[Violation, ...] = (),
                 retry_delay: Optional[float] = None, request_id: str = "") -> None:
        # Where the server lists violations, its message says no more than they do.
        first = "the request has faults" if violations else message
        lines = [f"{code.name}{f' ({reason})' if reason else ''}: {first}"]
        lines += [f"  {v.field}: {v.description}" for v in violations]
        super().__init__("\n".join(lines))
        self.code = code
        self.message = message
        self.reason = reason
        self.metadata = metadata or {}
        self.violations = violations
        self.retry_delay = retry_delay
        self.request_id = request_id


class InvalidArgument(EncoderdError):
    """The request is wrong, or its answer would be larger than max_response_bytes."""


class NotFound(EncoderdError):
    """No such model or health service."""


class FailedPrecondition(EncoderdError):
    """An output that this model cannot give."""


class Unauthenticated(EncoderdError):
    """The server wants a bearer token, or another one."""


class PermissionDenied(EncoderdError):
    """The server's list of clients has no name of this client's certificate."""


class ResourceExhausted(EncoderdError):
    """Overload: try again after retry_delay."""


class DeadlineExceeded(EncoderdError):
    """The timeout passed, or could not have been met even by an idle server."""


class Cancelled(EncoderdError):
    """The call was cancelled."""


class Unavailable(EncoderdError):
    """The server cannot be reached, is loading, or is draining."""


class Internal(EncoderdError):
    """A non-finite result or a failure of the engine."""


class AnswerError(EncoderdError):
    """The answer contradicts itself, for instance a tensor whose data does not fit its shape."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=grpc.StatusCode.INTERNAL, reason="MALFORMED_ANSWER")


_BY_CODE: dict[grpc.StatusCode, type[EncoderdError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.INTERNAL: Internal,
}


def error_from_rpc(error: Any) -> EncoderdError:
    """The exception for a failed call. Details that cannot be parsed are left out."""
    trailers = dict(error.trailing_metadata() or ())
    reason, request_id = "", ""
    metadata: dict[str, str] = {}
    violations: list[Violation] = []
    retry_delay = _pushback_seconds(trailers)
    for detail in _status_details(trailers):
        info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        call = error_details_pb2.RequestInfo()
        if detail.Unpack(info):
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Unpack(bad):
            # Older releases of googleapis-common-protos do not know a violation's reason.
            violations += [Violation(v.field, v.description, getattr(v, "reason", ""))
                           for v in bad.field_violations]
        elif detail.Unpack(retry):
            retry_delay = retry.retry_delay.ToTimedelta().total_seconds()
        elif detail.Unpack(call):
            request_id = call.request_id
    return _BY_CODE.get(error.code(), EncoderdError)(
        error.details() or "", code=error.code(), reason=reason, metadata=metadata,
        violations=tuple(violations), retry_delay=retry_delay, request_id=request_id)


def _status_details(trailers: dict[str, Any]) -> list[Any]:
    try:
        return list(status_pb2.Status.FromString(trailers["grpc-status-details-bin"]).details)
    except (KeyError, DecodeError):
        return []


def _pushback_seconds(trailers: dict[str, Any]) -> Optional[float]:
    try:
        milliseconds = int(trailers["grpc-retry-pushback-ms"])
    except (KeyError, ValueError):
        return None
    return milliseconds / 1000 if milliseconds >= 0 else None
