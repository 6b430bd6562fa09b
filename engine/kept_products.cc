#include "engine/kept_products.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/accuracy.h"
#include "engine/encoder.h"
#include "engine/phase_memory.h"
#include "engine/status_macros.h"

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

// Runs the fixed sequences through whatever products there are at the time.
class Probe {
 public:
  static absl::StatusOr<std::unique_ptr<Probe>> Create(const EncoderSpec& spec) {
    std::unique_ptr<Probe> probe(new Probe(spec));
    ASSIGN_OR_RETURN(probe->memory_, PhaseMemory::Create({.width = spec.widest_hidden(),
                                                          .hidden = spec.hidden_size,
                                                          .limits = probe->limits_,
                                                          .helpers = 0}));
    return probe;
  }

  // By sequence; none where it is not finite, as a row of an embedding table may be.
  using Answers = std::vector<std::optional<AnswerTensor>>;

  absl::StatusOr<Answers> Run(const EncoderWeights& weights) const {
    // Its scratch memory is as large as these products want it.
    ASSIGN_OR_RETURN(const std::unique_ptr<Encoder> encoder, Encoder::Create({.spec = spec_,
                                                                              .weights = weights,
                                                                              .limits = limits_,
                                                                              .memory = *memory_,
                                                                              .helpers = nullptr}));
    Answers answers;
    for (const Sequence& sequence : fixed_.sequences()) {
      absl::StatusOr<AnswerTensor> rows = LastHiddenState(spec_, *encoder, sequence);
      if (!rows.ok() && !absl::IsInternal(rows.status())) return rows.status();
      answers.push_back(rows.ok() ? std::optional(*std::move(rows)) : std::nullopt);
    }
    return answers;
  }

  // The mean over the tokens of 1 − cosine.
  double Error(const Answers& exact, const Answers& rounded) const {
    double sum = 0;
    int64_t rows = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      if (!exact[i].has_value()) continue;
      if (!rounded[i].has_value()) return std::numeric_limits<double>::infinity();
      sum += SumOfErrors(exact[i]->data.floats(), rounded[i]->data.floats(), spec_.hidden_size);
      rows += exact[i]->shape[0];
    }
    return rows == 0 ? 0 : sum / static_cast<double>(rows);
  }

 private:
  explicit Probe(const EncoderSpec& spec)
      : spec_(spec),
        limits_({.max_batch_tokens = Tokens(spec), .max_sequence_tokens = Tokens(spec)}),
        fixed_(spec, Tokens(spec)) {}

  static int64_t Tokens(const EncoderSpec& spec) {
    return spec.max_positions > 0 ? std::min(kMaxTokens, spec.max_positions) : kMaxTokens;
  }

  const EncoderSpec& spec_;
  const BatchLimits limits_;
  const FixedSequences fixed_;
  std::unique_ptr<PhaseMemory> memory_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> KeepSensitiveProducts(const EncoderSpec& spec,
                                                               EncoderWeights& int8,
                                                               EncoderWeights& bf16) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Probe> probe, Probe::Create(spec));
  ASSIGN_OR_RETURN(const Probe::Answers exact, probe->Run(bf16));
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
