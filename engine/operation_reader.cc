#include "engine/operation_reader.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/io/json.h"
#include "engine/status_macros.h"

namespace encoderd {

absl::StatusOr<Buffer> OperationReader::ReadFinite(const std::string& name) const {
  ASSIGN_OR_RETURN(Buffer values, checkpoint_.Read(name));
  CheckFinite(name, values.floats());
  return values;
}

absl::Status OperationReader::ReadFinite(const std::string& name, std::span<float> dst) const {
  RETURN_IF_ERROR(checkpoint_.ReadInto(name, dst));
  CheckFinite(name, dst);
  return absl::OkStatus();
}

void OperationReader::CheckFinite(const std::string& name, std::span<const float> values) const {
  const auto bad = [](float x) { return !std::isfinite(x); };
  const auto first = std::ranges::find_if(values, bad);
  if (first == values.end()) return;
  std::string fault = absl::StrCat("tensor \"", Printable(checkpoint_.NameInFile(name)),
                                   "\": element ", first - values.begin(), " is ", *first,
                                   ", the first of ", std::ranges::count_if(values, bad),
                                   " such of ", values.size(), "; expected finite numbers");
  // Products that share a tensor read it more than once.
  if (std::ranges::find(faults_.all(), fault) == faults_.all().end()) {
    faults_.Add(std::move(fault));
  }
}

ProductKind OperationReader::InBlock(Activation activation, ops::Combine combine) const {
  return {.activation = activation, .combine = combine, .precision = precision_};
}

ops::RowType OperationReader::FfnRows() const {
  return precision_ == Precision::kFp32 ? ops::RowType::kFp32 : ops::RowType::kBf16;
}

ProductKind OperationReader::IntoFfn(Activation activation, ops::Combine combine) const {
  ProductKind kind = InBlock(activation, combine);
  kind.dst_type = FfnRows();
  return kind;
}

ProductKind OperationReader::OutOfFfn(ops::Combine combine) const {
  ProductKind kind = InBlock(Activation::kNone, combine);
  kind.src_type = FfnRows();
  return kind;
}

absl::StatusOr<ops::Linear> OperationReader::ReadLinear(const TensorNames& names, int64_t in,
                                                        int64_t out,
                                                        const ProductKind& kind) const {
  return ReadStacked({names}, in, out, kind);
}

absl::StatusOr<ops::Linear> OperationReader::ReadStacked(const std::vector<TensorNames>& parts,
                                                         int64_t in, int64_t out,
                                                         const ProductKind& kind) const {
  ASSIGN_OR_RETURN(const Matrix matrix, ReadMatrix(parts, in, out));
  return Build(matrix, 0, out, kind);
}

absl::StatusOr<OperationReader::Matrix> OperationReader::ReadMatrix(
    const std::vector<TensorNames>& parts, int64_t in, int64_t out) const {
  const bool has_bias = std::any_of(parts.begin(), parts.end(),
                                    [](const TensorNames& part) { return !part.bias.empty(); });
  Matrix matrix = {.name = parts.front().weight, .in = in};
  ASSIGN_OR_RETURN(matrix.weights,
                   Buffer::Allocate(static_cast<size_t>(in * out) * sizeof(float), matrix.name));
  ASSIGN_OR_RETURN(matrix.bias,
                   Buffer::Allocate(has_bias ? static_cast<size_t>(out) * sizeof(float) : 0,
                                    parts.front().bias));
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto own = [&](Buffer& buffer) {
      const size_t part = buffer.floats().size() / parts.size();
      return buffer.floats().subspan(i * part, part);
    };
    RETURN_IF_ERROR(ReadFinite(parts[i].weight, own(matrix.weights)));
    if (parts[i].bias.empty()) {
      std::ranges::fill(own(matrix.bias), 0.0f);
    } else {
      RETURN_IF_ERROR(ReadFinite(parts[i].bias, own(matrix.bias)));
    }
  }
  return matrix;
}

absl::StatusOr<ops::Linear> OperationReader::Build(const Matrix& matrix, int64_t first, int64_t out,
                                                   const ProductKind& kind) const {
  const auto rows = [&](const Buffer& buffer, int64_t width) {
    return buffer.floats().subspan(static_cast<size_t>(first * width),
                                   static_cast<size_t>(out * width));
  };
  return ops::Linear::Create(
      {.name = matrix.name,
       .in = matrix.in,
       .out = out,
       .weights = rows(matrix.weights, matrix.in),
       .bias = matrix.bias.size() > 0 ? rows(matrix.bias, 1) : std::span<const float>(),
       .activation = kind.activation,
       .combine = kind.combine,
       .precision = kind.precision,
       .src_type = kind.src_type,
       .dst_type = kind.dst_type},
      buckets_);
}

absl::StatusOr<ops::LayerNorm> OperationReader::ReadNorm(const TensorNames& names,
                                                         Activation activation) const {
  ASSIGN_OR_RETURN(const Buffer weight, ReadFinite(names.weight));
  ASSIGN_OR_RETURN(const Buffer bias, names.bias.empty()
                                          ? Buffer::AllocateZeroed(weight.size(), names.weight)
                                          : ReadFinite(names.bias));
  return ops::LayerNorm::Create({.name = names.weight,
                                 .weight = weight.floats(),
                                 .bias = bias.floats(),
                                 .eps = spec_.norm_eps,
                                 .activation = activation});
}

absl::StatusOr<ops::Linear> OperationReader::ReadLinearStep(const Step& step, int64_t width) {
  for (const auto& [known, linear] : linear_steps_) {
    if (known == step) return linear;
  }
  ASSIGN_OR_RETURN(ops::Linear linear,
                   ReadLinear(step.names, width, step.out, {.activation = step.activation}));
  linear_steps_.emplace_back(step, linear);
  return linear;
}

absl::StatusOr<std::vector<StepWeights>> OperationReader::ReadSteps(const std::vector<Step>& steps,
                                                                    int64_t width) {
  std::vector<StepWeights> weights(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (step.kind == Step::Kind::kNorm) {
      ASSIGN_OR_RETURN(weights[i].norm, ReadNorm(step.names, step.activation));
    } else {
      ASSIGN_OR_RETURN(weights[i].linear, ReadLinearStep(step, width));
      width = step.out;
    }
  }
  return weights;
}

}  // namespace encoderd
