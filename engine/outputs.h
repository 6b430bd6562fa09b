// outputs.h — from rows of fp32 activations to the tensors of an answer.
//
// Role:   called by the forward pass at every layer boundary. Each function writes the rows of one
//         sequence and returns whether all that it wrote is finite and within the answer's type.
// Source: sentence-transformers 3, models/Pooling.py and Normalize.py; transformers 4, BertPooler.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace encoderd {

// The activations of one sequence, [S, width], in pieces that follow one another.
struct HiddenRows {
  struct Piece {
    const float* rows = nullptr;
    int64_t tokens = 0;
  };
  std::span<const Piece> pieces;
  int64_t width = 0;

  const float* Row(int64_t token) const;
  std::span<const float> Floats(const Piece& piece) const {
    return {piece.rows, static_cast<size_t>(piece.tokens * width)};
  }
};

// Whether no value is an infinity or NaN.
bool AllFinite(const HiddenRows& hidden);

// Copies `rows` to where rows first_row … of `tensor` lie.
bool WriteRows(std::span<const float> rows, int64_t first_row, DataType type, AnswerTensor& tensor);
bool WriteRows(const HiddenRows& hidden, int64_t first_row, DataType type, AnswerTensor& tensor);

// The rows of a sequence that one pooled vector is made of: the visible tokens among [begin, end).
struct PooledRows {
  HiddenRows hidden;
  std::span<const uint8_t> keys;  // [S] or empty = all visible
  Span range;
};

// CLS: the first visible row; MEAN and MAX over the visible rows. dst [width]. REQUIRES: at least
// one row is visible, and kind is not kPooler.
void Pool(Pooling kind, const PooledRows& rows, std::span<float> dst);

// Keeps the first `dimensions` values of `vector`, divides by their L2 norm if asked (norms below
// 1e-12 count as that), and writes them as row `row` of `tensor`.
bool WritePooled(std::span<float> vector, const PooledOutput& output, int64_t row, DataType type,
                 AnswerTensor& tensor);

}  // namespace encoderd
