// onednn.h — private to engine/ops: the oneDNN engine and stream, and the border where its
// exceptions become statuses.
#pragma once

#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/ops/activation.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace encoderd::ops {

// The process's CPU engine.
const dnnl::engine& CpuEngine();

// The calling thread's stream; a CPU stream runs what it is given in the calling thread.
dnnl::stream& ThreadStream();

// A memory object over borrowed data. oneDNN's arguments are not const; it writes to destinations
// and scratchpads alone.
inline dnnl::memory Borrow(const dnnl::memory::desc& desc, const void* data) {
  return {desc, CpuEngine(), const_cast<void*>(data)};
}

// Dense fp32 [rows, width].
inline dnnl::memory::desc RowsDesc(int64_t rows, int64_t width) {
  return {{rows, width}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab};
}

// A scratchpad of `bytes` at `data`.
inline dnnl::memory BorrowScratchpad(size_t bytes, void* data) {
  return Borrow(
      {{static_cast<int64_t>(bytes)}, dnnl::memory::data_type::u8, dnnl::memory::format_tag::a},
      data);
}

// Runs f, which may throw, and returns what went wrong as a status that names `what`.
template <typename F>
absl::Status CatchOneDnn(std::string_view what, F&& f) {
  try {
    std::forward<F>(f)();
    return absl::OkStatus();
  } catch (const dnnl::error& e) {
    return absl::InternalError(absl::StrCat("oneDNN: ", std::string(what), ": ", e.what()));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory: ", std::string(what)));
  }
}

// Appends the activation as a post-op; kNone appends nothing.
inline void AppendActivation(Activation activation, dnnl::post_ops& post_ops) {
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:
      post_ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0.f, 0.f);
      return;
    case Activation::kGelu:
      post_ops.append_eltwise(dnnl::algorithm::eltwise_gelu_erf, 0.f, 0.f);
      return;
    case Activation::kGeluTanh:
      post_ops.append_eltwise(dnnl::algorithm::eltwise_gelu_tanh, 0.f, 0.f);
      return;
    case Activation::kSilu:
      post_ops.append_eltwise(dnnl::algorithm::eltwise_swish, 1.f, 0.f);
      return;
    case Activation::kTanh:
      post_ops.append_eltwise(dnnl::algorithm::eltwise_tanh, 0.f, 0.f);
      return;
  }
}

}  // namespace encoderd::ops
