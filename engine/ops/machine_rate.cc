#include "engine/ops/machine_rate.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "engine/ops/onednn.h"
#include "engine/ops/register_loop.h"
#include "engine/ops/runtime.h"
#include "engine/status_macros.h"
#include "engine/tensor/buffer.h"
#include "oneapi/dnnl/dnnl_ukernel.hpp"

namespace encoderd::ops {
namespace {

using dnnl::memory;
using Type = memory::data_type;

// Of A, B and C in C = A · B.
struct Types {
  Type a, b, c;
};

Types TypesOf(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return {Type::f32, Type::f32, Type::f32};
    case Precision::kBf16:
      return {Type::bf16, Type::bf16, Type::f32};
    case Precision::kInt8:
      return {Type::u8, Type::s8, Type::s32};
  }
  return {};
}

// Ordinary numbers: zeros or subnormals might run at another speed. The bytes 0x3D are 0.046 as
// fp32 and as bf16, and 61 as int8.
void Fill(void* operand, size_t bytes) { std::memset(operand, 0x3D, bytes); }
void Fill(const memory& operand) { Fill(operand.get_data_handle(), operand.get_desc().get_size()); }

// AMX multiplies tiles, which only a micro-kernel of oneDNN's loads and stores here: 2 × 2 tiles of
// C, on operands of 16 KiB each that stay in the first cache.
constexpr int64_t kTileRows = 32, kTileColumns = 32, kTileBytes = 512;  // of a row of A

struct Tiles {
  dnnl::ukernel::brgemm kernel;
  Buffer a, b, c;
};

absl::StatusOr<RegisterLoop> TileLoop(Precision precision) {
  auto tiles = std::make_shared<Tiles>();
  const Types types = TypesOf(precision);
  const int64_t k = kTileBytes / static_cast<int64_t>(memory::data_type_size(types.a));
  absl::Status built = CatchOneDnn("tile loop", [&] {
    tiles->kernel = dnnl::ukernel::brgemm(kTileRows, kTileColumns, k, /*batch_size=*/1, /*lda=*/k,
                                          /*ldb=*/kTileColumns, /*ldc=*/kTileColumns, types.a,
                                          types.b, types.c);
    tiles->kernel.finalize();
    tiles->kernel.generate();
  });
  RETURN_IF_ERROR(built);
  for (Buffer* const operand : {&tiles->a, &tiles->b}) {
    ASSIGN_OR_RETURN(*operand, Buffer::Allocate(kTileRows * kTileBytes, "tile loop"));
    Fill(operand->data(), operand->bytes().size());
  }
  ASSIGN_OR_RETURN(tiles->c,
                   Buffer::Allocate(kTileRows * kTileColumns * sizeof(float), "tile loop"));
  constexpr int kRepeats = 64;
  return RegisterLoop{
      .run =
          [tiles] {
            static const std::vector<std::pair<memory::dim, memory::dim>> kOffsets = {{0, 0}};
            tiles->kernel.set_hw_context();
            for (int i = 0; i < kRepeats; ++i) {
              tiles->kernel.execute(tiles->a.data(), tiles->b.data(), kOffsets, tiles->c.data(),
                                    /*scratch=*/nullptr);
            }
            dnnl::ukernel::brgemm::release_hw_context();
          },
      .operations = 2.0 * kRepeats * kTileRows * kTileColumns * static_cast<double>(k),
      .instruction = "AMX tiles in the first cache"};
}

}  // namespace

struct MachineMatmul::Impl {
  dnnl::matmul matmul;
  memory src, weights, dst;
  std::string implementation;
};

absl::StatusOr<MachineMatmul> MachineMatmul::Create(Precision precision) {
  RETURN_IF_ERROR(RequirePrecision(precision));
  auto impl = std::make_unique<Impl>();
  absl::Status built = CatchOneDnn("machine matmul", [&] {
    const Types types = TypesOf(precision);
    constexpr auto kRows = memory::format_tag::ab;
    const dnnl::matmul::primitive_desc desc(CpuEngine(), {{kM, kK}, types.a, kRows},
                                            {{kK, kN}, types.b, memory::format_tag::any},
                                            {{kM, kN}, types.c, kRows});
    impl->matmul = dnnl::matmul(desc);
    impl->implementation = desc.impl_info_str();
    impl->src = memory(desc.src_desc(), CpuEngine());
    impl->weights = memory(desc.weights_desc(), CpuEngine());
    impl->dst = memory(desc.dst_desc(), CpuEngine());
    for (const memory& operand : {impl->src, impl->weights}) Fill(operand);
  });
  RETURN_IF_ERROR(built);
  return MachineMatmul(std::move(impl));
}

MachineMatmul::MachineMatmul(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MachineMatmul::MachineMatmul(MachineMatmul&&) noexcept = default;
MachineMatmul::~MachineMatmul() = default;

std::string MachineMatmul::implementation() const { return impl_->implementation; }

void MachineMatmul::Run() {
  impl_->matmul.execute(
      ThreadStream(),
      {{DNNL_ARG_SRC, impl_->src}, {DNNL_ARG_WEIGHTS, impl_->weights}, {DNNL_ARG_DST, impl_->dst}});
}

absl::StatusOr<RegisterLoop> RegisterLoop::Create(Precision precision) {
  RETURN_IF_ERROR(RequirePrecision(precision));
  if (precision != Precision::kFp32 && HasTiles()) return TileLoop(precision);
  return VectorLoop(precision);
}

}  // namespace encoderd::ops
