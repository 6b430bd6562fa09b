#include "engine/kept_products.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/accuracy.h"
#include "engine/answer.h"
#include "engine/encoder.h"
#include "engine/phase_memory.h"
#include "engine/status_macros.h"
#include "engine/validation.h"

namespace encoderd {
namespace {

// A longer sequence says no more, and takes its time once for each product of the model.
constexpr int64_t kMaxTokens = 64;

enum class Part { kQkv, kAttentionOutput, kFfnIn, kFfnOut };
constexpr std::array<std::string_view, 4> kPartNames = {"qkv", "attention_output", "ffn_in",
                                                        "ffn_out"};  // by Part

struct Product {
  size_t block = 0;  // of EncoderWeights::blocks
  Part part = Part::kQkv;

  std::string Name() const {
    return absl::StrCat(block, ".", std::string(kPartNames[static_cast<size_t>(part)]));
  }
};

void Exchange(const Product& product, EncoderWeights& x, EncoderWeights& y) {
  BlockWeights& a = x.blocks[product.block];
  BlockWeights& b = y.blocks[product.block];
  switch (product.part) {
    case Part::kQkv:
      std::swap(a.qkv, b.qkv);
      std::swap(a.relative, b.relative);  // which qkv has made
      return;
    case Part::kAttentionOutput:
      std::swap(a.attention_output, b.attention_output);
      return;
    case Part::kFfnIn:
      std::swap(a.ffn_in, b.ffn_in);
      std::swap(a.ffn_gate, b.ffn_gate);
      return;
    case Part::kFfnOut:
      std::swap(a.ffn_out, b.ffn_out);
      return;
  }
}

std::vector<Product> ProductsOf(const EncoderSpec& spec, const EncoderWeights& weights) {
  std::vector<Product> products;
  for (size_t block = 0; block < weights.blocks.size(); ++block) {
    products.push_back({block, Part::kQkv});
    products.push_back({block, Part::kAttentionOutput});
    if (spec.ffn_size == 0) continue;
    products.push_back({block, Part::kFfnIn});
    products.push_back({block, Part::kFfnOut});
  }
  return products;
}

// Runs the fixed sequences, in one batch, through whatever products there are at the time.
class Probe {
 public:
  struct Answer {
    AnswerTensor rows;         // of all sequences, [tokens, hidden]
    std::vector<bool> finite;  // by sequence; a row of an embedding table may not be
  };

  static absl::StatusOr<std::unique_ptr<Probe>> Create(const EncoderSpec& spec) {
    std::unique_ptr<Probe> probe(new Probe(spec));
    ASSIGN_OR_RETURN(probe->memory_, PhaseMemory::Create({.width = spec.widest_hidden(),
                                                          .hidden = spec.hidden_size,
                                                          .limits = probe->limits_,
                                                          .helpers = 0}));
    return probe;
  }

  absl::StatusOr<Answer> Run(const EncoderWeights& weights) const {
    // Its scratch memory is as large as these products want it.
    ASSIGN_OR_RETURN(const std::unique_ptr<Encoder> encoder, Encoder::Create({.spec = spec_,
                                                                              .weights = weights,
                                                                              .limits = limits_,
                                                                              .memory = *memory_,
                                                                              .helpers = nullptr}));
    ASSIGN_OR_RETURN(encoderd::Answer tensors, AllocateTensors(spec_, plan_));
    std::vector<BatchItem> items;
    for (size_t i = 0; i < request_.sequences.size(); ++i) {
      items.push_back({.request = &request_, .plan = &plan_, .sequence = i, .answer = &tensors});
    }
    RETURN_IF_ERROR(encoder->Run(items, NeverAbandoned));
    Answer answer = {.rows = std::move(tensors.last_hidden_state)};
    for (const BatchItem& item : items) answer.finite.push_back(item.status.ok());
    return answer;
  }

  // The mean over the tokens of 1 − cosine.
  double Error(const Answer& exact, const Answer& rounded) const {
    double sum = 0;
    int64_t tokens = 0;
    for (size_t i = 0; i < exact.finite.size(); ++i) {
      if (!exact.finite[i]) continue;
      if (!rounded.finite[i]) return std::numeric_limits<double>::infinity();
      sum += SumOfErrors(RowsOf(exact, i), RowsOf(rounded, i), spec_.hidden_size);
      tokens += plan_.token_offsets[i + 1] - plan_.token_offsets[i];
    }
    return tokens == 0 ? 0 : sum / static_cast<double>(tokens);
  }

 private:
  explicit Probe(const EncoderSpec& spec)
      : spec_(spec),
        fixed_(spec,
               spec.max_positions > 0 ? std::min(kMaxTokens, spec.max_positions) : kMaxTokens),
        request_({.sequences = fixed_.sequences(), .outputs = {.last_hidden_state = true}}),
        plan_(std::get<Plan>(Validate(spec, {}, request_))),
        limits_({.max_batch_tokens = plan_.token_offsets.back(),
                 .max_sequence_tokens = plan_.token_offsets.back()}) {}

  std::span<const float> RowsOf(const Answer& answer, size_t sequence) const {
    const auto width = static_cast<size_t>(spec_.hidden_size);
    const auto begin = static_cast<size_t>(plan_.token_offsets[sequence]);
    const auto end = static_cast<size_t>(plan_.token_offsets[sequence + 1]);
    return answer.rows.data.floats().subspan(begin * width, (end - begin) * width);
  }

  const EncoderSpec& spec_;
  const FixedSequences fixed_;
  const Request request_;
  const Plan plan_;
  const BatchLimits limits_;
  std::unique_ptr<PhaseMemory> memory_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> KeepSensitiveProducts(const EncoderSpec& spec,
                                                               EncoderWeights& int8,
                                                               EncoderWeights& bf16) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Probe> probe, Probe::Create(spec));
  ASSIGN_OR_RETURN(const Probe::Answer exact, probe->Run(bf16));
  std::vector<Product> sensitive;
  for (const Product& product : ProductsOf(spec, bf16)) {
    Exchange(product, int8, bf16);
    const auto rounded = probe->Run(bf16);
    Exchange(product, int8, bf16);
    RETURN_IF_ERROR(rounded.status());
    if (probe->Error(exact, *rounded) > kMaxErrorShare) sensitive.push_back(product);
  }
  std::vector<std::string> names;
  for (const Product& product : sensitive) {
    Exchange(product, int8, bf16);
    names.push_back(product.Name());
  }
  return names;
}

}  // namespace encoderd
