// map_output.h — an attention map that somebody asked for, row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/tensor/data_type.h"

namespace encoderd::ops {

// An attention map to write: [heads, rows, S] of `type` at `dst`, in the order of the lists.
struct MapOutput {
  DataType type = DataType::kFp32;
  std::span<const int32_t> heads;
  std::span<const int32_t> rows;  // empty = all S
  std::byte* dst = nullptr;
};

// The place of a head in the map, or -1.
int64_t PlaceOfHead(const MapOutput& map, int64_t head);

bool HasRow(const MapOutput& map, int64_t row);

// Whether the map has any row of [first_row, first_row + rows).
bool HasRows(const MapOutput& map, int64_t first_row, int64_t rows);

// Writes a row of the head at that place. REQUIRES: HasRow.
void WriteMapRow(const MapOutput& map, int64_t place, int64_t row, std::span<const float> weights);

}  // namespace encoderd::ops
