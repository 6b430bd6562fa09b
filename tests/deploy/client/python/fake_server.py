"""A gRPC server inside the test process: keeps the requests it got, answers what it is told."""

from concurrent import futures

import grpc
from google.protobuf import any_pb2, wrappers_pb2
from google.rpc import status_pb2

from encoderd_client import _messages


class Refusal(Exception):
    """Makes a handler end the call with this status, details and trailing metadata."""

    def __init__(self, code, message, details=(), trailers=()):
        super().__init__(message)
        self.code, self.message = code, message
        packed = [any_pb2.Any() for _ in details]
        for target, detail in zip(packed, details):
            target.Pack(detail)
        status = status_pb2.Status(code=code.value[0], message=message, details=packed)
        self.trailers = (*trailers, ("grpc-status-details-bin", status.SerializeToString()))


class FakeServer:
    """encode, get_model and check are called with the parsed request and the server's context and
    return the answer; encode_chunked returns an iterable of chunks, watch one of statuses."""

    def __init__(self):
        self.encode = lambda request, context: _messages.EncodeResponse(token_offsets=[0])
        self.encode_chunked = lambda request, context: []
        self.get_model = lambda request, context: _messages.GetModelResponse()
        self.check = lambda request, context: wrappers_pb2.Int32Value(value=1)
        self.watch = lambda request, context: [wrappers_pb2.Int32Value(value=1)]
        self.requests = []
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=4),
                                   options=[("grpc.max_metadata_size", 64 << 10),
                                            ("grpc.max_receive_message_length", -1)])
        self._server.add_generic_rpc_handlers([
            grpc.method_handlers_generic_handler(_messages.SERVICE, {
                "Encode": self._unary("encode", _messages.EncodeRequest),
                "EncodeChunked": self._stream("encode_chunked", _messages.EncodeRequest),
                "GetModel": self._unary("get_model", _messages.GetModelRequest),
            }),
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", {
                "Check": self._unary("check", wrappers_pb2.StringValue),
                "Watch": self._stream("watch", wrappers_pb2.StringValue),
            }),
        ])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self):
        self._server.stop(grace=None).wait()

    def _unary(self, name, request_type):
        def handle(request, context):
            self.requests.append(request)
            try:
                return getattr(self, name)(request, context)
            except Refusal as refusal:
                _end(context, refusal)

        return grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=request_type.FromString,
            response_serializer=lambda message: message.SerializeToString())

    def _stream(self, name, request_type):
        def handle(request, context):
            self.requests.append(request)
            try:
                yield from getattr(self, name)(request, context)
            except Refusal as refusal:
                _end(context, refusal)

        return grpc.unary_stream_rpc_method_handler(
            handle, request_deserializer=request_type.FromString,
            response_serializer=lambda message: message.SerializeToString())


def _end(context, refusal):
    context.set_trailing_metadata(refusal.trailers)
    context.abort(refusal.code, refusal.message)
