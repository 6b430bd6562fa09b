// attention_kernels.h — the two matrix products of attention, in blocks of keys.
//
// Role: private to engine/ops. Operands lie as head_packing.h says. In fp32, where head_dim is a
//       multiple of kHeadProductColumns, both are made in vectors (head_product.h), for exactly the
//       rows that there are. Else micro-kernels exist for each multiple of the format's steps; larger
//       numbers of query rows go through in several.
// Bits: no row depends on which rows are multiplied with it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/ops/head_packing.h"
#include "engine/ops/ukernel.h"

namespace encoderd::ops {

// Products of query rows with one more matrix: by the number of rows in steps.
class StepKernels {
 public:
  static constexpr int64_t kSteps = 4;

  StepKernels() = default;
  // `shape` is that of one step. Throws dnnl::error.
  StepKernels(Ukernel::Shape shape, int64_t a_number_bytes);

  // Rows are rounded up to a step: so many are read and written.
  void Run(const std::byte* a, int64_t rows, const std::byte* b, float* c) const;

 private:
  std::array<Ukernel, kSteps> kernels_;
  int64_t step_ = 0;
  int64_t a_row_bytes_ = 0;
  int64_t c_stride_ = 0;
};

// scores [rows][stride] = q · k.
class ScoreKernels {
 public:
  ScoreKernels() = default;
  // Throws dnnl::error.
  ScoreKernels(const HeadFormat& format, int64_t stride);

  // `keys` ≤ kKeyBlock of one block; so many rounded up to the format's key_step are written.
  void Run(const std::byte* q, int64_t rows, const std::byte* k, int64_t keys, float* scores) const;

 private:
  HeadFormat format_;
  int64_t stride_ = 0;
  std::array<StepKernels, 4> kernels_;  // by keys in steps, where vectors do not do it
};

// context [rows][depth] (+)= weights [rows][stride · sizeof(float)] · v.
class ContextKernels {
 public:
  ContextKernels() = default;
  // Throws dnnl::error.
  ContextKernels(const HeadFormat& format, int64_t stride);

  // `keys` ≤ kKeyBlock of one block; so many rounded up to the format's key_step are read.
  void Run(const std::byte* weights, int64_t rows, const std::byte* v, int64_t keys, bool add,
           float* context) const;

 private:
  HeadFormat format_;
  int64_t stride_ = 0;
  std::array<StepKernels, 4> set_, add_;  // by keys in steps, where vectors do not do it
};

}  // namespace encoderd::ops
