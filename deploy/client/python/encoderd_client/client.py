"""The connection to one encoderd."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections import abc
from types import TracebackType
from typing import Any, Optional, Union

import grpc
from google.protobuf import wrappers_pb2

from encoderd_client import _messages
from encoderd_client._chunks import Chunks, Piece, assemble
from encoderd_client.errors import error_from_rpc
from encoderd_client.request import (
    AnyPooling,
    AnySequence,
    Attention,
    DataType,
    Priority,
    fill_attention,
    fill_pooling,
    fill_sequence,
)
from encoderd_client.result import (
    EncodeResult,
    HealthStatus,
    ModelInfo,
    model_from_message,
    result_from_message,
)
from encoderd_client.tls import Tls

# What a server gives at most by default.
DEFAULT_MAX_RESPONSE_BYTES = 256 << 20

# What encode_chunked() accepts at most by default, so that no server can fill the memory.
DEFAULT_MAX_CHUNKED_BYTES = 4 << 30


class Client:
    """A connection to encoderd; close() it or use it in a `with` block.

    Threads: every method may be called from several threads at once.
    Errors:  a call that is refused or fails raises a subclass of EncoderdError; input that the
             wire cannot carry raises TypeError or ValueError before anything is sent.
    Retries: none. EncoderdError.retry_delay says when a new try makes sense.
    """

    def __init__(self, address: str = "127.0.0.1:50051", *, timeout: Optional[float] = 30.0,
                 max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES, model: str = "",
                 tls: Union[Tls, bool] = False,
                 token: Union[str, abc.Callable[[], str], None] = None,
                 credentials: Optional[grpc.ChannelCredentials] = None,
                 metadata: abc.Iterable[tuple[str, str]] = (),
                 channel_options: abc.Iterable[tuple[str, Any]] = ()) -> None:
        """Connects on the first call.

        address:            host:port, or any other gRPC target.
        timeout:            seconds for each call that names none; None = no deadline of ours.
        max_response_bytes: the largest answer to accept. A larger one is refused by the server
                            before it computes anything.
        model:              "" = the only one served.
        tls:                a Tls that names the files; True = TLS with the authorities of the
                            system; False = plaintext.
        token:              bearer token of every call, or what is called to give it each time, so
                            that it can change. Without TLS it passes the network as it is.
        credentials:        instead of tls: any other ones of gRPC's.
        metadata:           sent with every call.
        channel_options:    further gRPC channel arguments.
        """
        if not 0 < max_response_bytes < 1 << 31:
            raise ValueError("max_response_bytes: expected 1 to 2147483647 (a gRPC message is "
                             f"smaller than 2 GiB), got {max_response_bytes}")
        if tls and credentials:
            raise ValueError("tls, credentials: expected one of them at most, got both")
        self._timeout = timeout
        self._max_response_bytes = max_response_bytes
        self._model = model
        self._fixed_metadata = tuple(metadata)
        self._token: Optional[abc.Callable[[], str]] = (
            functools.partial(str, token) if isinstance(token, str) else token)
        options = [
            # Pieces are up to 1 MiB, however small an answer in one message may be.
            ("grpc.max_receive_message_length", max(max_response_bytes, 2 << 20)),
            ("grpc.max_send_message_length", -1),
            # Sixteen violations in words are more than the 8 KiB that gRPC takes by default.
            ("grpc.max_metadata_size", 64 << 10),
            # A proxy of the environment is meant for the web, not for a service next door.
            ("grpc.enable_http_proxy", 0),
            *channel_options,
        ]
        if tls:
            tls = tls if isinstance(tls, Tls) else Tls()
            credentials = tls.credentials()
            if tls.server_name is not None:
                options.append(("grpc.ssl_target_name_override", tls.server_name))
        self._channel = (grpc.secure_channel(address, credentials, options) if credentials
                         else grpc.insecure_channel(address, options))
        self._encode = self._method("Encode", _messages.EncodeRequest, _messages.EncodeResponse)
        self._encode_chunked = self._channel.unary_stream(
            f"/{_messages.SERVICE}/EncodeChunked",
            request_serializer=_messages.EncodeRequest.SerializeToString,
            response_deserializer=_messages.EncodeChunk.FromString)
        self._get_model = self._method("GetModel", _messages.GetModelRequest,
                                       _messages.GetModelResponse)
        # The messages of grpc.health.v1 have one field each, and so the wire form of these
        # wrappers: a string and a number.
        health_format = {"request_serializer": wrappers_pb2.StringValue.SerializeToString,
                         "response_deserializer": wrappers_pb2.Int32Value.FromString}
        self._check = self._channel.unary_unary("/grpc.health.v1.Health/Check", **health_format)
        self._watch = self._channel.unary_stream("/grpc.health.v1.Health/Watch", **health_format)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    @property
    def _metadata(self) -> tuple[tuple[str, str], ...]:
        if self._token is None:
            return self._fixed_metadata
        token = self._token()
        # gRPC would print it with what it says of the fault.
        if not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token):
            raise ValueError("token: expected the characters A-Z a-z 0-9 - . _ ~ + / =, got others")
        return (*self._fixed_metadata, ("authorization", f"Bearer {token}"))

    def close(self) -> None:
        """Ends the connection; calls that are still running are cancelled."""
        self._channel.close()

    def encode(self, sequences: abc.Iterable[AnySequence], *,
               last_hidden_state: bool = False,
               hidden_states: abc.Iterable[int] = (), all_hidden_states: bool = False,
               attentions: Union[Attention, bool] = False,
               pooled: abc.Iterable[AnyPooling] = (),
               logits: bool = False, contacts: bool = False,
               dtype: DataType = DataType.FP32,
               priority: Priority = Priority.INTERACTIVE,
               request_id: str = "",
               timeout: Optional[float] = None) -> EncodeResult:
        """Runs the encoder over `sequences`, which may have different lengths; none is padded.

        sequences:         each a row of token ids, an array [S, input_dim] of vectors, or a
                           Sequence with masks, token types, positions or spans.
        last_hidden_state: the rows after the last layer (and its final norm, if there is one).
        hidden_states:     chosen layers: 0 = embeddings, l = after block l, negative from the end.
        all_hidden_states: every layer, embeddings included.
        attentions:        True = every map, or an Attention that chooses.
        pooled:            one Pooling or PoolingSpec per vector wanted.
        logits:            the output of the model's head.
        contacts:          which tokens touch, as protein models tell it from their attention.
        dtype:             element type on the wire; BF16 and FP16 halve the answer.
        request_id:        echoed in the answer and in the server's log; "" = made up there.
        timeout:           seconds; None = the client's.
        """
        request = self._request(
            sequences, last_hidden_state=last_hidden_state, hidden_states=hidden_states,
            all_hidden_states=all_hidden_states, attentions=attentions, pooled=pooled,
            logits=logits, contacts=contacts, dtype=dtype, priority=priority, request_id=request_id)
        return result_from_message(self._call(self._encode, request, timeout))

    def encode_chunked(self, sequences: abc.Iterable[AnySequence], *,
                       max_bytes: int = DEFAULT_MAX_CHUNKED_BYTES,
                       timeout: Optional[float] = None, **options: Any) -> EncodeResult:
        """encode() for an answer of any size: it comes in pieces and is put together here.

        max_bytes: the largest answer to accept; a larger one raises AnswerError when its shapes
                   come, before the rest does. The client's max_response_bytes is for the message
                   with the shapes alone.
        timeout:   of the whole stream.
        options:   those of encode().
        """
        request = self._request(sequences, **options)
        with contextlib.closing(self._chunks(request, timeout)) as chunks:
            return result_from_message(assemble(chunks, max_bytes))

    def iter_pieces(self, sequences: abc.Iterable[AnySequence], *,
                    timeout: Optional[float] = None,
                    **options: Any) -> abc.Generator[Piece, None, None]:
        """The pieces of encode_chunked()'s answer as they are computed, for an answer that is
        larger than memory: each is at most 1 MiB, and the server computes no faster than they are
        taken. Whoever stops early closes the generator, which cancels the call. Options: those of
        encode().
        """
        request = self._request(sequences, **options)
        checked = Chunks(max_bytes=sys.maxsize)
        with contextlib.closing(self._chunks(request, timeout)) as chunks:
            for chunk in chunks:
                piece = checked.add(chunk)
                if piece is not None:
                    yield piece
        checked.finish()

    def model(self, *, timeout: Optional[float] = None) -> ModelInfo:
        """What is served, its shapes and its limits."""
        request = _messages.GetModelRequest(model=self._model)
        return model_from_message(self._call(self._get_model, request, timeout))

    def health(self, service: str = "", *, timeout: Optional[float] = None) -> HealthStatus:
        """The health of a service: "" = ready for calls, "liveness" = the process works."""
        request = wrappers_pb2.StringValue(value=service)
        return HealthStatus(self._call(self._check, request, timeout).value)

    def wait_until_serving(self, timeout: float, service: str = "") -> None:
        """Returns once the service is SERVING; the server need not be up yet. Raises
        DeadlineExceeded after `timeout` seconds."""
        watch = self._watch(wrappers_pb2.StringValue(value=service), timeout=timeout,
                            metadata=self._metadata, wait_for_ready=True)
        try:
            for status in watch:
                if status.value == HealthStatus.SERVING:
                    return
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        finally:
            watch.cancel()

    def _request(self, sequences: abc.Iterable[AnySequence], *,
                 last_hidden_state: bool = False,
                 hidden_states: abc.Iterable[int] = (), all_hidden_states: bool = False,
                 attentions: Union[Attention, bool] = False,
                 pooled: abc.Iterable[AnyPooling] = (),
                 logits: bool = False, contacts: bool = False,
                 dtype: DataType = DataType.FP32,
                 priority: Priority = Priority.INTERACTIVE,
                 request_id: str = "") -> Any:
        request = _messages.EncodeRequest(model=self._model, priority=priority,
                                          max_response_bytes=self._max_response_bytes,
                                          request_id=request_id)
        for index, sequence in enumerate(sequences):
            fill_sequence(request.sequences.add(), sequence, f"sequences[{index}]")
        outputs = request.outputs
        outputs.dtype = dtype
        outputs.last_hidden_state = last_hidden_state
        outputs.hidden_states.extend(hidden_states)
        outputs.all_hidden_states = all_hidden_states
        outputs.logits = logits
        outputs.contacts = contacts
        if attentions:
            fill_attention(outputs.attentions,
                           attentions if isinstance(attentions, Attention) else Attention())
        for pooling in pooled:
            fill_pooling(outputs.pooled.add(), pooling)
        return request

    def _chunks(self, request: Any, timeout: Optional[float]) -> abc.Generator[Any, None, None]:
        """The messages of the stream. Closing it cancels the call."""
        stream = self._encode_chunked(request,
                                      timeout=self._timeout if timeout is None else timeout,
                                      metadata=self._metadata)
        try:
            yield from stream
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        finally:
            stream.cancel()

    def _method(self, name: str, request: Any, response: Any) -> Any:
        return self._channel.unary_unary(f"/{_messages.SERVICE}/{name}",
                                         request_serializer=request.SerializeToString,
                                         response_deserializer=response.FromString)

    def _call(self, method: Any, request: Any, timeout: Optional[float]) -> Any:
        try:
            return method(request, timeout=self._timeout if timeout is None else timeout,
                          metadata=self._metadata)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
