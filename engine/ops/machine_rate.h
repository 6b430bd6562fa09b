// machine_rate.h — the yardsticks of the benchmarks: what this machine's matrix multiplication, and
// its arithmetic alone, can do right now.
//
// Both belong to one thread, which has called EnterNumericEnvironment. A multiply-add counts as two
// operations. int8 is u8 · s8 with sums in int32.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/precision.h"

namespace encoderd::ops {

// oneDNN's matmul with packed weights at a size that it is good at: M = 512, K = 768, N = 3072.
class MachineMatmul {
 public:
  static constexpr int64_t kM = 512, kK = 768, kN = 3072;
  static constexpr double kOperations = 2.0 * kM * kK * kN;  // of one Run

  static absl::StatusOr<MachineMatmul> Create(Precision precision = Precision::kFp32);
  MachineMatmul(MachineMatmul&&) noexcept;
  ~MachineMatmul();

  void Run();
  std::string implementation() const;  // as oneDNN names it

 private:
  struct Impl;
  explicit MachineMatmul(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The instruction that multiplies numbers of this type, over and over, on operands that lie in
// registers (or, for tiles, in the first cache): no matrix multiplication can be faster.
struct RegisterLoop {
  std::function<void()> run;  // a few microseconds
  double operations = 0;      // of one run
  std::string instruction;

  // Errors: kUnimplemented where the instruction set in use has none for this type.
  static absl::StatusOr<RegisterLoop> Create(Precision precision);
};

}  // namespace encoderd::ops
