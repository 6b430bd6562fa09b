#include "engine/ops/runtime.h"

#include <immintrin.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cfenv>

#include "absl/strings/str_cat.h"
#include "engine/ops/onednn.h"
#include "hwy/targets.h"

namespace encoderd::ops {
namespace {

struct Isa {
  std::string_view name;
  dnnl::cpu_isa onednn;
  int64_t highway_off;  // Highway targets that need more than this
};

// Rising. oneDNN's own steps between these (AVX2-VNNI and the like) report as the step below.
constexpr std::array<Isa, 6> kIsas = {{
    {"avx2", dnnl::cpu_isa::avx2, HWY_AVX3 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR},
    {"avx512", dnnl::cpu_isa::avx512_core, HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR},
    {"avx512_vnni", dnnl::cpu_isa::avx512_core_vnni, HWY_AVX3_ZEN4 | HWY_AVX3_SPR},
    {"avx512_bf16", dnnl::cpu_isa::avx512_core_bf16, HWY_AVX3_SPR},
    {"avx512_fp16", dnnl::cpu_isa::avx512_core_fp16, 0},
    {"amx", dnnl::cpu_isa::avx512_core_amx, 0},
}};

// Whether the instruction set in use has all of `isa`: each oneDNN value has the bits of everything
// below it.
bool Has(const Isa& isa) {
  const auto effective = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto bits = static_cast<unsigned>(isa.onednn);
  return (effective & bits) == bits;
}
bool Has(std::string_view name) {
  return std::ranges::any_of(kIsas, [&](const Isa& isa) { return isa.name == name && Has(isa); });
}

}  // namespace

absl::Status SetMaxIsa(std::string_view name) {
  if (name == "auto") return absl::OkStatus();
  std::string known = "auto";
  for (const Isa& isa : kIsas) {
    if (isa.name == name) {
      if (dnnl::set_max_cpu_isa(isa.onednn) != dnnl::status::success) {
        return absl::FailedPreconditionError(
            "the instruction set can be capped only before the first operation is created");
      }
      hwy::DisableTargets(isa.highway_off);
      return absl::OkStatus();
    }
    absl::StrAppend(&known, ", ", std::string(isa.name));
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown instruction set: expected one of ", known,
                                                 "; got ", std::string(name)));
}

std::string IsaName() {
  std::string_view name = "sse41";
  for (const Isa& isa : kIsas) {
    if (Has(isa)) name = isa.name;
  }
  return std::string(name);
}

bool HasTiles() { return IsaName() == "amx"; }

absl::Status RequireSupportedIsa() {
  if (IsaName() != "sse41") return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this CPU, or the cap set by --isa_max, has no AVX2: expected at least avx2");
}

absl::Status RequirePrecision(Precision precision) {
  if (precision == Precision::kFp32) return absl::OkStatus();
  const std::string_view least = precision == Precision::kBf16 ? "avx512_bf16" : "avx512_vnni";
  if (Has(least)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      std::string(PrecisionName(precision)), ": this CPU, or the cap set by --isa_max, gives ",
      IsaName(), ": expected at least ", std::string(least)));
}

std::string MathsLibrary() {
  const dnnl::version_t* const version = dnnl::version();
  return absl::StrCat("oneDNN ", version->major, ".", version->minor, ".", version->patch, " ",
                      version->hash);
}

void EnterNumericEnvironment() {
  dnnl::set_default_fpmath_mode(dnnl::fpmath_mode::strict);
  omp_set_num_threads(1);
  std::fesetround(FE_TONEAREST);
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
}

OpCounts& ThreadOpCounts() {
  thread_local OpCounts counts;
  return counts;
}

const dnnl::engine& CpuEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& ThreadStream() {
  thread_local dnnl::stream stream(CpuEngine());
  return stream;
}

}  // namespace encoderd::ops
