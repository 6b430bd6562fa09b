"""The messages of encoder.proto, as classes.

They live in a descriptor pool of their own, so that a program may also import stubs which it
generated from the same file.
"""

from __future__ import annotations

import pathlib
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "encoderd.v1.EncoderService"


def _load_pool() -> descriptor_pool.DescriptorPool:
    path = pathlib.Path(__file__).with_name("encoder.binpb")
    if not path.is_file():
        raise ImportError(f"{path} is missing: it is made by `pip install` of this package, which "
                          "cannot be imported from its source folder")
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file:
        pool.Add(file)
    return pool


def _message(name: str) -> Any:
    descriptor = _POOL.FindMessageTypeByName(f"encoderd.v1.{name}")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(_POOL).GetPrototype(descriptor)  # protobuf 4.21


_POOL = _load_pool()
EncodeChunk = _message("EncodeChunk")
EncodeRequest = _message("EncodeRequest")
EncodeResponse = _message("EncodeResponse")
GetModelRequest = _message("GetModelRequest")
GetModelResponse = _message("GetModelResponse")
Tensor = _message("Tensor")
