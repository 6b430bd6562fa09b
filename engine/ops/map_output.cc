#include "engine/ops/map_output.h"

#include <algorithm>

#include "engine/tensor/convert.h"

namespace encoderd::ops {

int64_t PlaceOfHead(const MapOutput& map, int64_t head) {
  const auto found = std::ranges::find(map.heads, head);
  return found == map.heads.end() ? -1 : found - map.heads.begin();
}

bool HasRow(const MapOutput& map, int64_t row) {
  return map.rows.empty() || std::ranges::find(map.rows, row) != map.rows.end();
}

bool HasRows(const MapOutput& map, int64_t first_row, int64_t rows) {
  return map.rows.empty() || std::ranges::any_of(map.rows, [&](int64_t row) {
           return row >= first_row && row < first_row + rows;
         });
}

void WriteMapRow(const MapOutput& map, int64_t place, int64_t row, std::span<const float> weights) {
  const auto rows = static_cast<int64_t>(map.rows.empty() ? weights.size() : map.rows.size());
  const int64_t index =
      map.rows.empty() ? row : std::ranges::find(map.rows, row) - map.rows.begin();
  const size_t row_bytes = weights.size() * DataTypeBytes(map.type);
  NarrowFromFp32(map.type, weights,
                 {map.dst + static_cast<size_t>(place * rows + index) * row_bytes, row_bytes});
}

}  // namespace encoderd::ops
