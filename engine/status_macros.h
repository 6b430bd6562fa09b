// status_macros.h — leave a function early with the error that another one returned.
//
// The two macros have the meaning of the ones in newer Abseil releases and go when those are
// packaged.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expr)                                         \
  do {                                                                \
    if (absl::Status status_ = (expr); !status_.ok()) return status_; \
  } while (false)

#define ENCODERD_CONCAT_INNER_(a, b) a##b
#define ENCODERD_CONCAT_(a, b) ENCODERD_CONCAT_INNER_(a, b)

// ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open(path));
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_INNER_(ENCODERD_CONCAT_(status_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER_(result, lhs, expr)     \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  lhs = *std::move(result)
