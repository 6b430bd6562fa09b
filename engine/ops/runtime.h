// runtime.h — what all operations share: the instruction set, the numeric environment of a thread,
// and counts of work.
//
// Role: the only door to oneDNN's process-wide state. Nothing above engine/ops sees a dnnl type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/precision.h"

namespace encoderd::ops {

// Caps the instruction set that oneDNN and Highway dispatch to, together: "auto" (no cap), "avx2",
// "avx512", "avx512_vnni", "avx512_bf16", "avx512_fp16" or "amx". A cap above what the CPU has
// changes nothing. Errors: kInvalidArgument for another name; kFailedPrecondition after the first
// primitive was created.
absl::Status SetMaxIsa(std::string_view name);

// The instruction set in use, by the names above; "sse41" where the CPU (or the cap) has less than
// AVX2.
std::string IsaName();

// Whether that has matrix tiles (AMX).
bool HasTiles();

// Errors: kFailedPrecondition without AVX2, the least that the kernels are promised for.
absl::Status RequireSupportedIsa();

// Errors: kFailedPrecondition where the instruction set in use has no exact, quick products for it:
// bf16 needs avx512_bf16, and int8 avx512_vnni, below which sums of 8-bit products saturate.
absl::Status RequirePrecision(Precision precision);

// Name, version and commit of the library that the bits come from.
std::string MathsLibrary();

// Gives the calling thread the engine's numeric environment, for good: fp32 that is fp32 whatever
// ONEDNN_DEFAULT_FPMATH_MODE says, subnormals flushed to zero (they are slow to compute with and
// lie below every tolerance), rounding to nearest, and one OpenMP thread, so that every operation
// runs where it is called. Every thread that creates or runs operations calls it first.
void EnterNumericEnvironment();

// How often the calling thread did each thing that costs; tests hold the counts of a batch against
// the design.
struct OpCounts {
  int64_t executes = 0;   // products and norms run
  int64_t ukernels = 0;   // micro-kernels run, and blocks of products summed up by our own
  int64_t creations = 0;  // micro-kernels created
  int64_t packings = 0;   // matrices of weights packed
};
OpCounts& ThreadOpCounts();

}  // namespace encoderd::ops
