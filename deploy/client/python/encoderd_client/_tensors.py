"""NumPy arrays to and from the wire's tensors: little-endian, slowest axis first."""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from encoderd_client.errors import AnswerError


class DataType(enum.IntEnum):
    """The element type of the tensors of an answer. BF16 arrives as float32, FP16 as float16."""

    FP32 = 1
    BF16 = 2
    FP16 = 3


_WIRE_FORMAT = {DataType.FP32: "<f4", DataType.BF16: "<u2", DataType.FP16: "<f2"}


def element_bytes(tensor: Any, field: str) -> int:
    if tensor.dtype not in _WIRE_FORMAT:
        raise AnswerError(f"{field}: unknown element type {tensor.dtype}")
    return np.dtype(_WIRE_FORMAT[tensor.dtype]).itemsize


def array_from_tensor(tensor: Any, field: str) -> npt.NDArray[Any]:
    """The tensor as an array that shares its bytes (read-only), or is widened from BF16.

    `field` names the tensor in the AnswerError raised when its shape and data disagree.
    """
    shape = tuple(tensor.shape)
    expected = math.prod(shape) * element_bytes(tensor, field)
    wire = np.dtype(_WIRE_FORMAT[tensor.dtype])
    if any(length < 0 for length in shape) or expected != len(tensor.data):
        raise AnswerError(f"{field}: shape {list(shape)} of {DataType(tensor.dtype).name} needs "
                          f"{expected} bytes, got {len(tensor.data)}")
    array = np.frombuffer(tensor.data, wire).reshape(shape)
    if tensor.dtype == DataType.BF16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def fill_tensor(tensor: Any, values: npt.ArrayLike, field: str) -> None:
    """Writes `values` into the message: float16 as FP16, bfloat16 (of ml_dtypes) as BF16, any
    other number as FP32."""
    array = np.asarray(values)
    if array.dtype == np.float16:
        dtype, array = DataType.FP16, array.astype("<f2")
    elif array.dtype.name == "bfloat16":
        dtype, array = DataType.BF16, np.ascontiguousarray(array).view(np.uint16).astype("<u2")
    elif array.dtype.kind in "fiub":
        dtype, array = DataType.FP32, array.astype("<f4")
    else:
        raise TypeError(f"{field}: expected an array of numbers, got dtype {array.dtype}")
    tensor.dtype = dtype
    tensor.shape.extend(array.shape)
    tensor.data = array.tobytes()
