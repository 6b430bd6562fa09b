// shape.h — the shape of a tensor, for people.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace encoderd {

// "[2, 384]".
inline std::string ShapeText(std::span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace encoderd
