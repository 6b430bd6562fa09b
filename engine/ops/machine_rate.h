// machine_rate.h — the yardstick of the benchmarks: what this machine's matrix multiplication can
// do right now.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace encoderd::ops {

// oneDNN's fp32 matmul with packed weights at a size that it is good at: M = 512, K = 768, N =
// 3072. Belongs to one thread, which has called EnterNumericEnvironment.
class MachineMatmul {
 public:
  static constexpr int64_t kM = 512, kK = 768, kN = 3072;
  static constexpr double kOperations =
      2.0 * kM * kK * kN;  // of one Run; a multiply-add counts as 2

  static absl::StatusOr<MachineMatmul> Create();
  MachineMatmul(MachineMatmul&&) noexcept;
  ~MachineMatmul();

  void Run();

 private:
  struct Impl;
  explicit MachineMatmul(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace encoderd::ops
