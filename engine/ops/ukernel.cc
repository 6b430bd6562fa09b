#include "engine/ops/ukernel.h"

#include <immintrin.h>

#include <mutex>
#include <set>

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

__attribute__((target("amx-tile"))) void StoreTileShapes(TileShapes& shapes) {
  _tile_storeconfig(shapes.data());
}

__attribute__((target("amx-tile"))) void LoadTileShapes(const TileShapes& shapes) {
  _tile_loadconfig(shapes.data());
}

// Tiles that a kernel leaves alone may have any shape: whole ones make more kernels want the same.
void MakeUnusedTilesWhole(TileShapes& shapes) {
  constexpr size_t kTiles = 8, kRows = 16, kRowBytes = 64;
  constexpr size_t kRowBytesAt = 16,
                   kRowsAt = 48;  // two bytes, little-endian, and one for each tile
  for (size_t i = 0; i < kTiles; ++i) {
    if (shapes[kRowsAt + i] != std::byte{0}) continue;
    shapes[kRowsAt + i] = std::byte{kRows};
    shapes[kRowBytesAt + 2 * i] = std::byte{kRowBytes};
  }
}

// The same object for equal shapes, for good.
const TileShapes* Intern(const TileShapes& shapes) {
  static std::mutex mutex;
  static auto* const known = new std::set<TileShapes>();
  const std::lock_guard lock(mutex);
  return &*known->insert(shapes).first;
}

// The tiles that the kernel wants; null where it uses none. oneDNN tells nobody, but configures
// them, and the CPU can be asked what it was given.
const TileShapes* TilesOf(const dnnl::ukernel::brgemm& kernel) {
  if (!HasTiles()) return nullptr;
  dnnl::ukernel::brgemm::release_hw_context();
  kernel.set_hw_context();
  TileShapes shapes;
  StoreTileShapes(shapes);
  dnnl::ukernel::brgemm::release_hw_context();
  if (shapes == TileShapes()) return nullptr;
  MakeUnusedTilesWhole(shapes);
  return Intern(shapes);
}

}  // namespace

thread_local const TileShapes* Ukernel::configured_ = nullptr;
alignas(64) thread_local std::byte Ukernel::scratch_[kMaxScratchBytes];

Ukernel::Ukernel(const Shape& s) {
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
  if (s.precision != Precision::kFp32) {
    configured_ = nullptr;
    tiles_ = TilesOf(kernel_);
  }
  ++ThreadOpCounts().creations;
}

void Ukernel::Configure() const {
  // What set_hw_context does, in a fifth of its time.
  LoadTileShapes(*tiles_);
  configured_ = tiles_;
}

void TileUse::Whole() {
  static const TileShapes* const whole = [] {
    TileShapes shapes = {std::byte{1}};  // the palette, of which there is no other
    MakeUnusedTilesWhole(shapes);
    return Intern(shapes);
  }();
  if (Ukernel::configured_ == whole) return;
  LoadTileShapes(*whole);
  Ukernel::configured_ = whole;
}

TileUse::~TileUse() {
  if (Ukernel::configured_ == nullptr) return;
  dnnl::ukernel::brgemm::release_hw_context();
  Ukernel::configured_ = nullptr;
}

}  // namespace encoderd::ops
