#include "deploy/client/output_choice.h"

#include <cstdint>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/status_macros.h"

using StringList = std::vector<std::string>;

ABSL_FLAG(bool, last_hidden_state, false, "the rows after the last layer, [tokens, hidden]");
ABSL_FLAG(StringList, hidden_states, {},
          "layers to return, separated by commas: 0 = embeddings, L = after block L, negative from "
          "the end; or `all`");
ABSL_FLAG(bool, attentions, false,
          "attention maps, [heads, query rows, S] per layer and sequence; --layers, --heads and "
          "--query_rows choose among them");
ABSL_FLAG(StringList, layers, {},
          "blocks whose attention maps are wanted, 0..num_layers-1 or negative from the end, "
          "separated by commas; empty = all");
ABSL_FLAG(StringList, heads, {}, "heads whose maps are wanted, 0..num_heads-1; empty = all");
ABSL_FLAG(StringList, query_rows, {}, "rows of the maps that are wanted, 0..S-1; empty = all");
ABSL_FLAG(StringList, pooled, {},
          "pooled vectors, separated by commas, each KIND[:normalize|:raw][:layer=L]"
          "[:dimensions=N] with KIND one of default (what the model folder says), cls, mean, max, "
          "pooler; without normalize or raw, what the model folder says");
ABSL_FLAG(bool, logits, false, "the output of the model's head");
ABSL_FLAG(bool, contacts, false,
          "which tokens touch, [S - 2, S - 2] per sequence, by a protein model's regression over "
          "its attention maps");
ABSL_FLAG(std::string, dtype, "fp32",
          "element type of the answer on the wire: fp32, bf16 or fp16 (half the bytes)");

namespace encoderd::client {
namespace {

template <typename Field>
absl::Status ReadIntegers(absl::string_view flag, const StringList& words, Field& out) {
  for (const std::string& word : words) {
    int32_t value = 0;
    if (!absl::SimpleAtoi(word, &value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, ": expected integers separated by commas, got ", word));
    }
    out.Add(value);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Pooling> PoolingKind(absl::string_view name) {
  if (name == "default") return v1::POOLING_UNSPECIFIED;
  if (name == "cls") return v1::POOLING_CLS;
  if (name == "mean") return v1::POOLING_MEAN;
  if (name == "max") return v1::POOLING_MAX;
  if (name == "pooler") return v1::POOLING_POOLER;
  return absl::InvalidArgumentError(
      absl::StrCat("--pooled: expected default, cls, mean, max or pooler, got ", name));
}

absl::StatusOr<v1::DataType> WireType(absl::string_view name) {
  if (name == "fp32") return v1::DATA_TYPE_FP32;
  if (name == "bf16") return v1::DATA_TYPE_BF16;
  if (name == "fp16") return v1::DATA_TYPE_FP16;
  return absl::InvalidArgumentError(
      absl::StrCat("--dtype: expected fp32, bf16 or fp16, got ", name));
}

}  // namespace

absl::StatusOr<v1::PoolingSpec> ParsePooling(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  v1::PoolingSpec spec;
  ASSIGN_OR_RETURN(const v1::Pooling kind, PoolingKind(parts[0]));
  spec.set_kind(kind);
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::pair<std::string, std::string> option =
        absl::StrSplit(parts[i], absl::MaxSplits('=', 1));
    int32_t layer = 0;
    uint32_t dimensions = 0;
    if (parts[i] == "normalize" || parts[i] == "raw") {
      spec.set_normalize(parts[i] == "normalize");
    } else if (option.first == "layer" && absl::SimpleAtoi(option.second, &layer)) {
      spec.set_layer(layer);
    } else if (option.first == "dimensions" && absl::SimpleAtoi(option.second, &dimensions)) {
      spec.set_dimensions(dimensions);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--pooled: expected normalize, raw, layer=L or dimensions=N after ",
                       parts[0], ", got ", parts[i]));
    }
  }
  return spec;
}

absl::StatusOr<v1::AttentionSpec> AttentionFromFlags() {
  v1::AttentionSpec spec;
  RETURN_IF_ERROR(ReadIntegers("layers", absl::GetFlag(FLAGS_layers), *spec.mutable_layers()));
  RETURN_IF_ERROR(ReadIntegers("heads", absl::GetFlag(FLAGS_heads), *spec.mutable_heads()));
  RETURN_IF_ERROR(
      ReadIntegers("query_rows", absl::GetFlag(FLAGS_query_rows), *spec.mutable_query_rows()));
  return spec;
}

absl::StatusOr<v1::OutputSpec> OutputsFromFlags() {
  v1::OutputSpec spec;
  ASSIGN_OR_RETURN(const v1::DataType dtype, WireType(absl::GetFlag(FLAGS_dtype)));
  spec.set_dtype(dtype);
  spec.set_last_hidden_state(absl::GetFlag(FLAGS_last_hidden_state));
  spec.set_logits(absl::GetFlag(FLAGS_logits));
  spec.set_contacts(absl::GetFlag(FLAGS_contacts));
  const StringList states = absl::GetFlag(FLAGS_hidden_states);
  if (states == StringList{"all"}) {
    spec.set_all_hidden_states(true);
  } else {
    RETURN_IF_ERROR(ReadIntegers("hidden_states", states, *spec.mutable_hidden_states()));
  }
  ASSIGN_OR_RETURN(const v1::AttentionSpec attention, AttentionFromFlags());
  if (absl::GetFlag(FLAGS_attentions)) {
    *spec.mutable_attentions() = attention;
  } else if (attention.ByteSizeLong() > 0) {
    return absl::InvalidArgumentError(
        "--layers, --heads, --query_rows: expected together with --attentions, got alone");
  }
  for (const std::string& text : absl::GetFlag(FLAGS_pooled)) {
    ASSIGN_OR_RETURN(*spec.add_pooled(), ParsePooling(text));
  }
  return spec;
}

}  // namespace encoderd::client
