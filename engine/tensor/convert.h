// convert.h — exact widening to fp32 and correctly rounded narrowing from it.
//
// Role:   used where bytes become numbers (weight files, input vectors) and numbers become bytes
//         (answers).
// Source: IEEE 754 binary16, bfloat16 as the upper half of binary32; rounding to nearest, ties to
//         even.
#pragma once

#include <cstddef>
#include <span>

#include "engine/tensor/data_type.h"

namespace encoderd {

// Reads dst.size() elements of `type` from `src` (any alignment, little-endian). FP16 subnormals,
// signed zeros, infinities and NaNs keep their values; FP64 is rounded to nearest. REQUIRES:
// src.size() == dst.size() * DataTypeBytes(type).
void WidenToFp32(DataType type, std::span<const std::byte> src, std::span<float> dst);

// Writes src as `type` (FP32, BF16 or FP16) to `dst`, any alignment. A value beyond the type's
// range becomes an infinity. REQUIRES: dst.size() == src.size() * DataTypeBytes(type); type !=
// FP64.
void NarrowFromFp32(DataType type, std::span<const float> src, std::span<std::byte> dst);

}  // namespace encoderd
