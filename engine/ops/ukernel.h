// ukernel.h — one small matrix product of oneDNN's micro-kernels, called directly.
//
// Role: private to engine/ops; used by attention.cc.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/ops/onednn.h"
#include "engine/ops/runtime.h"
#include "oneapi/dnnl/dnnl_ukernel.hpp"

namespace encoderd::ops {

// One brgemm micro-kernel: C [m, n] = A [m, k] · B [k, n], or C += A · B.
class Ukernel {
 public:
  struct Shape {
    int64_t m, n, k, lda, ldb, ldc;
    bool accumulate;
  };

  Ukernel() = default;
  // Throws dnnl::error.
  explicit Ukernel(const Shape& s)
      : kernel_(s.m, s.n, s.k, /*batch_size=*/1, s.lda, s.ldb, s.ldc, kF32, kF32, kF32) {
    kernel_.set_add_C(s.accumulate);
    kernel_.finalize();
    if (kernel_.get_B_pack_type() != dnnl::ukernel::pack_type::no_trans ||
        kernel_.get_scratchpad_size() != 0) {
      throw dnnl::error(dnnl_unimplemented, "brgemm wants a packed B or a scratchpad for fp32");
    }
    kernel_.generate();
    ++ThreadOpCounts().creations;
  }

  void Run(const float* a, const float* b, float* c) const {
    static const std::vector<std::pair<dnnl::memory::dim, dnnl::memory::dim>> kOffsets = {{0, 0}};
    kernel_.execute(a, b, kOffsets, c, /*scratch=*/nullptr);
    ++ThreadOpCounts().ukernels;
  }

 private:
  static constexpr auto kF32 = dnnl::memory::data_type::f32;
  dnnl::ukernel::brgemm kernel_;
};

}  // namespace encoderd::ops
