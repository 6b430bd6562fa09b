#include "engine/ops/linear.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/ops/onednn.h"
#include "engine/ops/row_check.h"
#include "engine/ops/runtime.h"
#include "engine/status_macros.h"
#include "engine/tensor/buffer.h"

namespace encoderd::ops {
using dnnl::memory;

struct Linear::Impl {
  std::string name;
  int64_t in = 0;
  int64_t out = 0;
  bool has_bias = false;
  Activation activation = Activation::kNone;
  Combine combine = Combine::kNone;
  RowBuckets buckets;
  std::vector<dnnl::matmul> primitives;  // one per bucket
  memory::desc packed;                   // the weights' layout, shared by all buckets
  size_t scratchpad_bytes = 0;
  Buffer weights;
  Buffer bias;

  // Position of the other tensor among the post-ops: behind the activation, if there is one.
  int other_post_op() const { return activation == Activation::kNone ? 0 : 1; }

  dnnl::matmul::primitive_desc Describe(int64_t rows, const memory::desc& weights_desc) const {
    dnnl::post_ops post_ops;
    AppendActivation(activation, post_ops);
    if (combine != Combine::kNone) {
      post_ops.append_binary(
          combine == Combine::kAdd ? dnnl::algorithm::binary_add : dnnl::algorithm::binary_mul,
          RowsDesc(rows, out));
    }
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    attr.set_post_ops(post_ops);
    if (!has_bias) {
      return {CpuEngine(), RowsDesc(rows, in), weights_desc, RowsDesc(rows, out), attr};
    }
    return {CpuEngine(),      RowsDesc(rows, in),  weights_desc,
            RowsDesc(1, out), RowsDesc(rows, out), attr};
  }
};

absl::StatusOr<Linear> Linear::Create(const LinearOptions& options, const RowBuckets& buckets) {
  const auto [in, out] = std::pair(options.in, options.out);
  if (in <= 0 || out <= 0 || static_cast<int64_t>(options.weights.size()) != in * out ||
      (!options.bias.empty() && static_cast<int64_t>(options.bias.size()) != out)) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.name, ": expected weights [", out, ", ", in, "] and bias [", out, "] or none; got ",
        options.weights.size(), " and ", options.bias.size(), " elements"));
  }
  if (options.precision != Precision::kFp32) {
    return absl::UnimplementedError(absl::StrCat("products run in fp32 alone; got ",
                                                 std::string(PrecisionName(options.precision))));
  }
  auto impl = std::make_shared<Impl>();
  impl->name = options.name;
  impl->in = in;
  impl->out = out;
  impl->has_bias = !options.bias.empty();
  impl->activation = options.activation;
  impl->combine = options.combine;
  impl->buckets = buckets;

  // The largest bucket chooses the layout of the weights; all others are held to it.
  const bool expect_brgemm = IsaName() != "avx2";
  absl::Status built = CatchOneDnn(options.name, [&] {
    const memory::desc any({in, out}, memory::data_type::f32, memory::format_tag::any);
    impl->packed = impl->Describe(buckets.rows(buckets.count() - 1), any).weights_desc();
    for (int64_t i = 0; i < buckets.count(); ++i) {
      auto desc = impl->Describe(buckets.rows(i), impl->packed);
      if (expect_brgemm && !std::string_view(desc.impl_info_str()).starts_with("brg")) {
        throw dnnl::error(dnnl_unimplemented, desc.impl_info_str());
      }
      impl->scratchpad_bytes = std::max(impl->scratchpad_bytes, desc.scratchpad_desc().get_size());
      impl->primitives.emplace_back(desc);
      ++ThreadOpCounts().creations;
    }
  });
  RETURN_IF_ERROR(built);

  ASSIGN_OR_RETURN(impl->weights, Buffer::Allocate(impl->packed.get_size(), options.name));
  ASSIGN_OR_RETURN(impl->bias, Buffer::Allocate(options.bias.size_bytes(), options.name));
  std::copy(options.bias.begin(), options.bias.end(), impl->bias.floats().begin());
  absl::Status packed = CatchOneDnn(options.name, [&] {
    // torch keeps [out, in]; oneDNN's weights are [in, out], so the source is the transposed view.
    const memory::desc saved({in, out}, memory::data_type::f32, memory::format_tag::ba);
    memory src(saved, CpuEngine(), const_cast<float*>(options.weights.data()));
    memory dst(impl->packed, CpuEngine(), impl->weights.data());
    dnnl::reorder(src, dst).execute(ThreadStream(), src, dst);
    ++ThreadOpCounts().reorders;
  });
  RETURN_IF_ERROR(packed);
  Linear linear;
  linear.impl_ = std::move(impl);
  return linear;
}

int64_t Linear::in() const { return impl_->in; }
int64_t Linear::out() const { return impl_->out; }
size_t Linear::weights_bytes() const { return impl_->weights.size() + impl_->bias.size(); }
size_t Linear::scratchpad_bytes() const { return impl_->scratchpad_bytes; }

absl::Status Linear::Run(const float* src, int64_t rows, const float* other, float* dst,
                         std::span<std::byte> scratchpad) const {
  const Impl& impl = *impl_;
  return impl.buckets.ForEachChunk(rows, [&](int64_t first, int64_t bucket) {
    return CatchOneDnn(impl.name, [&] {
      const int64_t chunk = impl.buckets.rows(bucket);
      std::unordered_map<int, memory> args = {
          {DNNL_ARG_SRC, Borrow(RowsDesc(chunk, impl.in), src + first * impl.in)},
          {DNNL_ARG_WEIGHTS, Borrow(impl.packed, impl.weights.data())},
          {DNNL_ARG_DST, Borrow(RowsDesc(chunk, impl.out), dst + first * impl.out)},
          {DNNL_ARG_SCRATCHPAD, BorrowScratchpad(impl.scratchpad_bytes, scratchpad.data())}};
      if (impl.has_bias)
        args.emplace(DNNL_ARG_BIAS, Borrow(RowsDesc(1, impl.out), impl.bias.data()));
      if (impl.combine != Combine::kNone) {
        args.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(impl.other_post_op()) | DNNL_ARG_SRC_1,
                     Borrow(RowsDesc(chunk, impl.out), other + first * impl.out));
      }
      impl.primitives[static_cast<size_t>(bucket)].execute(ThreadStream(), args);
      ++ThreadOpCounts().executes;
    });
  });
}

std::string Linear::Kind() const {
  return absl::StrCat("linear ", impl_->in, " ", impl_->out, " ", impl_->has_bias, " ",
                      static_cast<int>(impl_->activation), " ", static_cast<int>(impl_->combine));
}

absl::StatusOr<bool> Linear::RowsAgree() const {
  ASSIGN_OR_RETURN(Buffer scratchpad, Buffer::Allocate(scratchpad_bytes(), impl_->name));
  const int64_t rows = impl_->buckets.rows(impl_->buckets.count() - 1);
  ASSIGN_OR_RETURN(
      Buffer other,
      Buffer::Allocate(
          impl_->combine == Combine::kNone ? 0 : static_cast<size_t>(rows * out()) * sizeof(float),
          impl_->name));
  std::fill(other.floats().begin(), other.floats().end(), 1.0f);
  return RowsAgreeInEveryBucket(
      impl_->buckets, in(), out(), [&](const float* src, int64_t count, float* dst) {
        return Run(src, count, other.floats().data(), dst, scratchpad.bytes());
      });
}

}  // namespace encoderd::ops
