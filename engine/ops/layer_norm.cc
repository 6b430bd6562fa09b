#include "engine/ops/layer_norm.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/ops/onednn.h"
#include "engine/ops/row_check.h"
#include "engine/ops/runtime.h"
#include "engine/status_macros.h"
#include "engine/tensor/buffer.h"

namespace encoderd::ops {

using dnnl::memory;

struct LayerNorm::Impl {
  std::string name;
  int64_t width = 0;
  Activation activation = Activation::kNone;
  RowBuckets buckets;
  std::vector<dnnl::layer_normalization_forward> primitives;  // one per bucket
  size_t scratchpad_bytes = 0;
  Buffer weight;
  Buffer bias;
};

absl::StatusOr<LayerNorm> LayerNorm::Create(const LayerNormOptions& options,
                                            const RowBuckets& buckets) {
  if (options.weight.empty() || options.weight.size() != options.bias.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.name, ": expected weight and bias of one width; got ",
                     options.weight.size(), " and ", options.bias.size(), " elements"));
  }
  auto impl = std::make_shared<Impl>();
  impl->name = options.name;
  impl->width = static_cast<int64_t>(options.weight.size());
  impl->buckets = buckets;
  impl->activation = options.activation;
  ASSIGN_OR_RETURN(impl->weight, Buffer::Allocate(options.weight.size_bytes(), options.name));
  ASSIGN_OR_RETURN(impl->bias, Buffer::Allocate(options.bias.size_bytes(), options.name));
  std::copy(options.weight.begin(), options.weight.end(), impl->weight.floats().begin());
  std::copy(options.bias.begin(), options.bias.end(), impl->bias.floats().begin());

  absl::Status built = CatchOneDnn(options.name, [&] {
    dnnl::post_ops post_ops;
    AppendActivation(options.activation, post_ops);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    attr.set_post_ops(post_ops);
    for (int64_t i = 0; i < buckets.count(); ++i) {
      const memory::desc rows = RowsDesc(buckets.rows(i), impl->width);
      dnnl::layer_normalization_forward::primitive_desc desc(
          CpuEngine(), dnnl::prop_kind::forward_inference, rows, rows,
          static_cast<float>(options.eps),
          dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift, attr);
      impl->scratchpad_bytes = std::max(impl->scratchpad_bytes, desc.scratchpad_desc().get_size());
      impl->primitives.emplace_back(desc);
      ++ThreadOpCounts().creations;
    }
  });
  RETURN_IF_ERROR(built);
  LayerNorm norm;
  norm.impl_ = std::move(impl);
  return norm;
}

size_t LayerNorm::weights_bytes() const { return impl_->weight.size() + impl_->bias.size(); }
size_t LayerNorm::scratchpad_bytes() const { return impl_->scratchpad_bytes; }

absl::Status LayerNorm::Run(const float* src, int64_t rows, float* dst,
                            std::span<std::byte> scratchpad) const {
  const Impl& impl = *impl_;
  return impl.buckets.ForEachChunk(rows, [&](int64_t first, int64_t bucket) {
    return CatchOneDnn(impl.name, [&] {
      const memory::desc chunk = RowsDesc(impl.buckets.rows(bucket), impl.width);
      const memory::desc vector({impl.width}, memory::data_type::f32, memory::format_tag::a);
      impl.primitives[static_cast<size_t>(bucket)].execute(
          ThreadStream(),
          {{DNNL_ARG_SRC, Borrow(chunk, src + first * impl.width)},
           {DNNL_ARG_DST, Borrow(chunk, dst + first * impl.width)},
           {DNNL_ARG_SCALE, Borrow(vector, impl.weight.data())},
           {DNNL_ARG_SHIFT, Borrow(vector, impl.bias.data())},
           {DNNL_ARG_SCRATCHPAD, BorrowScratchpad(impl.scratchpad_bytes, scratchpad.data())}});
      ++ThreadOpCounts().executes;
    });
  });
}

std::string LayerNorm::Kind() const {
  return absl::StrCat("norm ", impl_->width, " ", static_cast<int>(impl_->activation));
}

absl::StatusOr<bool> LayerNorm::RowsAgree() const {
  ASSIGN_OR_RETURN(Buffer scratchpad, Buffer::Allocate(scratchpad_bytes(), impl_->name));
  return RowsAgreeInEveryBucket(impl_->buckets, impl_->width, impl_->width,
                                [&](const float* src, int64_t rows, float* dst) {
                                  return Run(src, rows, dst, scratchpad.bytes());
                                });
}

}  // namespace encoderd::ops
