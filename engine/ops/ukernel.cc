#include "engine/ops/ukernel.h"

namespace encoderd::ops {
namespace {

using dnnl::memory;

struct Types {
  memory::data_type a, b, c;
  dnnl::ukernel::pack_type packing;  // of B
};

Types TypesOf(Precision precision) {
  using enum memory::data_type;
  switch (precision) {
    case Precision::kFp32:
      break;
    case Precision::kBf16:
      return {bf16, bf16, f32, dnnl::ukernel::pack_type::pack32};
    case Precision::kInt8:
      return {u8, s8, s32, dnnl::ukernel::pack_type::pack32};
  }
  return {f32, f32, f32, dnnl::ukernel::pack_type::no_trans};
}

}  // namespace

thread_local const Ukernel* Ukernel::configured_ = nullptr;
alignas(64) thread_local std::byte Ukernel::scratch_[kMaxScratchBytes];

Ukernel::Ukernel(const Shape& s) : wants_context_(s.precision != Precision::kFp32) {
  const Types types = TypesOf(s.precision);
  kernel_ = {s.m, s.n, s.k, /*batch_size=*/1, s.lda, s.ldb, s.ldc, types.a, types.b, types.c};
  kernel_.set_add_C(s.accumulate);
  kernel_.finalize();
  if (kernel_.get_B_pack_type() != types.packing ||
      kernel_.get_scratchpad_size() > kMaxScratchBytes) {
    throw dnnl::error(dnnl_unimplemented,
                      "brgemm wants another packing of B, or more scratch memory");
  }
  kernel_.generate();
  ++ThreadOpCounts().creations;
}

void Ukernel::Configure() const {
  kernel_.set_hw_context();
  configured_ = this;
}

TileUse::~TileUse() {
  if (Ukernel::configured_ == nullptr) return;
  dnnl::ukernel::brgemm::release_hw_context();
  Ukernel::configured_ = nullptr;
}

}  // namespace encoderd::ops
