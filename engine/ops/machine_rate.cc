#include "engine/ops/machine_rate.h"

#include <utility>

#include "engine/ops/onednn.h"
#include "engine/status_macros.h"

namespace encoderd::ops {

using dnnl::memory;

struct MachineMatmul::Impl {
  dnnl::matmul matmul;
  memory src, weights, dst;
};

absl::StatusOr<MachineMatmul> MachineMatmul::Create() {
  auto impl = std::make_unique<Impl>();
  absl::Status built = CatchOneDnn("machine matmul", [&] {
    const memory::desc any({kK, kN}, memory::data_type::f32, memory::format_tag::any);
    const dnnl::matmul::primitive_desc desc(CpuEngine(), RowsDesc(kM, kK), any, RowsDesc(kM, kN));
    impl->matmul = dnnl::matmul(desc);
    impl->src = memory(desc.src_desc(), CpuEngine());
    impl->weights = memory(desc.weights_desc(), CpuEngine());
    impl->dst = memory(desc.dst_desc(), CpuEngine());
    // Ordinary numbers: zeros or subnormals might run at another speed.
    for (const memory& operand : {impl->src, impl->weights}) {
      auto* const values = static_cast<float*>(operand.get_data_handle());
      for (size_t i = 0; i < operand.get_desc().get_size() / sizeof(float); ++i) {
        values[i] = 0.01f * static_cast<float>(i % 17 + 1);
      }
    }
  });
  RETURN_IF_ERROR(built);
  return MachineMatmul(std::move(impl));
}

MachineMatmul::MachineMatmul(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MachineMatmul::MachineMatmul(MachineMatmul&&) noexcept = default;
MachineMatmul::~MachineMatmul() = default;

void MachineMatmul::Run() {
  impl_->matmul.execute(
      ThreadStream(),
      {{DNNL_ARG_SRC, impl_->src}, {DNNL_ARG_WEIGHTS, impl_->weights}, {DNNL_ARG_DST, impl_->dst}});
}

}  // namespace encoderd::ops
