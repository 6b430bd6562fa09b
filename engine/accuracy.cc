#include "engine/accuracy.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "engine/answer.h"
#include "engine/status_macros.h"
#include "engine/validation.h"

namespace encoderd {
namespace {

// The whole set is about half a batch.
constexpr int64_t kLengths[] = {1, 2, 7, 24, 64, 160};

constexpr uint32_t kSeed = 20261130;

constexpr double kLargest = 2;

// 1 − cosine.
double Error(std::span<const float> a, std::span<const float> b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i], y = b[i];
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  if (!std::isfinite(aa + bb)) return kLargest;
  if (aa == 0 || bb == 0) return aa == bb ? 0 : 1;
  return std::clamp(1 - ab / std::sqrt(aa * bb), 0.0, kLargest);
}

void ForEachError(std::span<const float> expected, std::span<const float> got, int64_t width,
                  absl::FunctionRef<void(double)> visit) {
  const auto columns = static_cast<size_t>(width);
  for (size_t row = 0; row < expected.size(); row += columns) {
    visit(Error(expected.subspan(row, columns), got.subspan(row, columns)));
  }
}

}  // namespace

double LargestError(std::span<const float> expected, std::span<const float> got, int64_t width) {
  double largest = 0;
  ForEachError(expected, got, width, [&](double error) { largest = std::max(largest, error); });
  return largest;
}

double SumOfErrors(std::span<const float> expected, std::span<const float> got, int64_t width) {
  double sum = 0;
  ForEachError(expected, got, width, [&](double error) { sum += error; });
  return sum;
}

absl::StatusOr<AnswerTensor> LastHiddenState(const EncoderSpec& spec, Worker& worker,
                                             const Sequence& sequence,
                                             absl::FunctionRef<bool()> abandoned) {
  const Request request = {.sequences = {sequence}, .outputs = {.last_hidden_state = true}};
  auto checked = Validate(spec, {.max_sequence_tokens = sequence.tokens()}, request);
  if (const auto* faults = std::get_if<Violations>(&checked)) {
    return absl::InvalidArgumentError(faults->listed.front().description);
  }
  const Plan plan = std::get<Plan>(std::move(checked));
  ASSIGN_OR_RETURN(Answer answer, AllocateTensors(spec, plan));
  std::vector<BatchItem> items = {
      {.request = &request, .plan = &plan, .sequence = 0, .answer = &answer}};
  RETURN_IF_ERROR(worker.Run(items, abandoned));
  RETURN_IF_ERROR(items[0].status);
  return std::move(answer.last_hidden_state);
}

FixedSequences::FixedSequences(const EncoderSpec& spec, int64_t max_tokens) {
  std::mt19937 random(kSeed);
  for (const int64_t tokens : kLengths) {
    Add(spec, std::min(tokens, max_tokens), random);
    if (tokens >= max_tokens) return;
  }
}

void FixedSequences::Add(const EncoderSpec& spec, int64_t tokens, std::mt19937& random) {
  Sequence& sequence = sequences_.emplace_back();
  if (spec.input == InputKind::kTokenIds) {
    auto& ids = ids_.emplace_back();
    std::uniform_int_distribution<int32_t> any_id(0, static_cast<int32_t>(spec.vocab_size) - 1);
    for (int64_t i = 0; i < tokens; ++i) ids.push_back(any_id(random));
    sequence.input_ids = ids;
    return;
  }
  auto& vectors = vectors_.emplace_back();
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < tokens * spec.input_dim; ++i) vectors.push_back(normal(random));
  auto& shape = shapes_.emplace_back();
  shape = {tokens, spec.input_dim};
  sequence.inputs_embeds = InputTensor{.shape = shape, .data = std::as_bytes(std::span(vectors))};
}

}  // namespace encoderd
