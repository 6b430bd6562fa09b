// Checks of one sequence: its input, its per-token lists, its mask and its spans.

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/validation_internal.h"

namespace encoderd::validation {
namespace {

// True when a little-endian element of `type` is an infinity or a NaN: all exponent bits set.
bool IsNonFinite(DataType type, const std::byte* element) {
  if (type == DataType::kFp32) {
    uint32_t bits;
    std::memcpy(&bits, element, sizeof(bits));
    return (bits & 0x7f800000u) == 0x7f800000u;
  }
  const uint32_t exponent = type == DataType::kBf16 ? 0x7f80u : 0x7c00u;
  uint16_t bits;
  std::memcpy(&bits, element, sizeof(bits));
  return (bits & exponent) == exponent;
}

class SequenceCheck {
 public:
  SequenceCheck(const EncoderSpec& spec, const RequestLimits& limits, const Request& request,
                size_t index, Faults& faults)
      : spec_(spec),
        limits_(limits),
        sequence_(request.sequences[index]),
        index_(index),
        faults_(faults) {}

  int64_t Run() {
    tokens_ = CheckInput();
    // A list cannot be compared with a length that is not known; its values still can be checked.
    CheckTokenTypes();
    CheckPositions();
    CheckMask();
    CheckSpans();
    return tokens_;
  }

 private:
  std::string Field(std::string_view name) const {
    return absl::StrCat("sequences[", index_, "].", absl::string_view(name.data(), name.size()));
  }
  std::string Field(std::string_view name, size_t element) const {
    return absl::StrCat(Field(name), "[", element, "]");
  }

  template <typename Description>
  void Add(std::string_view reason, std::string_view name, Description description) {
    faults_.Add(reason, [&] { return Field(name); }, description);
  }

  // Returns the number of tokens, 0 if it is not known.
  int64_t CheckInput() {
    const bool has_ids = !sequence_.input_ids.empty();
    const bool has_vectors = sequence_.inputs_embeds.has_value();
    if (has_ids && has_vectors) {
      Add("INPUT_KIND_MISMATCH", "inputs_embeds", [] {
        return "the sequence has input_ids and inputs_embeds; expected exactly one of them";
      });
      return 0;
    }
    if (has_vectors) return CheckVectors(*sequence_.inputs_embeds);
    if (!has_ids) {
      const std::string_view expected =
          spec_.input == InputKind::kVectors ? "inputs_embeds" : "input_ids";
      Add("EMPTY_SEQUENCE", expected,
          [] { return "the sequence has no tokens; expected at least 1"; });
      return 0;
    }
    if (spec_.input == InputKind::kVectors) {
      Add("INPUT_KIND_MISMATCH", "input_ids", [&] {
        return absl::StrCat("this model takes vectors: expected inputs_embeds of shape [S, ",
                            spec_.input_dim, "], got ", sequence_.input_ids.size(), " ids");
      });
      return 0;
    }
    CheckRange("TOKEN_OUT_OF_RANGE", "input_ids", "token id", sequence_.input_ids,
               spec_.vocab_size);
    return CheckLength("input_ids", static_cast<int64_t>(sequence_.input_ids.size()));
  }

  // inputs_embeds [S, width], every value finite. Nothing is multiplied that the caller chose: the
  // bytes are divided by the width that the model has.
  int64_t CheckVectors(const InputTensor& input) {
    const int64_t width = spec_.input_size();
    if (input.dtype == DataType::kFp64) {
      Add("UNSUPPORTED_VALUE", "inputs_embeds.dtype",
          [] { return "expected FP32, BF16 or FP16, got FP64"; });
      return 0;
    }
    if (input.shape.size() != 2 || input.shape[0] < 0 || input.shape[1] != width) {
      Add("SHAPE_MISMATCH", "inputs_embeds.shape",
          [&] { return absl::StrCat("expected [S, ", width, "], got ", ShapeText(input.shape)); });
      return 0;
    }
    const int64_t rows = input.shape[0];
    if (rows == 0) {
      Add("EMPTY_SEQUENCE", "inputs_embeds",
          [] { return "the sequence has no tokens; expected at least 1"; });
      return 0;
    }
    const size_t element_bytes = DataTypeBytes(input.dtype);
    const size_t row_bytes = static_cast<size_t>(width) * element_bytes;
    if (input.data.size() % row_bytes != 0 ||
        input.data.size() / row_bytes != static_cast<size_t>(rows)) {
      Add("SHAPE_MISMATCH", "inputs_embeds.data", [&] {
        return absl::StrCat("expected ", rows, " rows of ", row_bytes, " bytes for shape ",
                            ShapeText(input.shape), ", got ", input.data.size(), " bytes");
      });
      return 0;
    }
    for (size_t at = 0; at < input.data.size(); at += element_bytes) {
      if (!IsNonFinite(input.dtype, input.data.data() + at)) continue;
      const size_t element = at / element_bytes;
      faults_.Add(
          "NON_FINITE_INPUT", [&] { return Field("inputs_embeds.data", element); },
          [&] {
            return absl::StrCat("expected a finite value, got an infinity or a NaN at row ",
                                element / static_cast<size_t>(width), ", column ",
                                element % static_cast<size_t>(width));
          });
    }
    return CheckLength("inputs_embeds", rows);
  }

  // Returns `tokens`: a sequence that is too long still has a length to compare its lists with.
  int64_t CheckLength(std::string_view field, int64_t tokens) {
    const int64_t limit = MaxTokens();
    if (tokens > limit) {
      Add("SEQUENCE_TOO_LONG", field, [&] {
        return absl::StrCat("the sequence has ", tokens, " tokens; expected at most ", limit,
                            ": nothing is cut off");
      });
    }
    return tokens;
  }

  int64_t MaxTokens() const {
    return spec_.max_positions == 0 ? limits_.max_sequence_tokens
                                    : std::min(limits_.max_sequence_tokens, spec_.max_positions);
  }

  // A model without token types takes the list that means the same as none: zeros.
  void CheckTokenTypes() {
    CheckListLength("token_type_ids", sequence_.token_type_ids.size());
    CheckRange("TYPE_OUT_OF_RANGE", "token_type_ids", "token type", sequence_.token_type_ids,
               std::max<int64_t>(spec_.type_vocab_size, 1));
  }

  void CheckPositions() {
    if (sequence_.position_ids.empty()) return;
    if (!spec_.has_positions()) {
      Add("POSITIONS_UNSUPPORTED", "position_ids", [&] {
        return absl::StrCat("this model has no positions: expected an empty list, got ",
                            sequence_.position_ids.size(), " values");
      });
      return;
    }
    CheckListLength("position_ids", sequence_.position_ids.size());
    CheckRange("POSITION_OUT_OF_RANGE", "position_ids", "position", sequence_.position_ids,
               spec_.max_positions == 0 ? limits_.max_sequence_tokens : spec_.position_rows());
  }

  void CheckMask() {
    const Mask& mask = sequence_.mask;
    if (mask.keys_present) CheckMaskPart("mask.keys", mask.keys, /*planes=*/1, /*axes=*/1);
    if (mask.pairs_present) CheckMaskPart("mask.pairs", mask.pairs, /*planes=*/1, /*axes=*/2);
    if (mask.head_pairs_present) {
      CheckMaskPart("mask.head_pairs", mask.head_pairs, /*planes=*/spec_.num_heads, /*axes=*/2);
    }
    if (!mask.keys.empty() &&
        std::all_of(mask.keys.begin(), mask.keys.end(), [](uint8_t key) { return key == 0; })) {
      Add("MASK_HIDES_ALL", "mask.keys",
          [] { return "all values are 0: expected at least one token that may be seen"; });
    }
    CheckListLength("mask.segment_ids", mask.segment_ids.size());
  }

  // One byte per pair, 0 or 1: [planes, S] or [planes, S, S].
  void CheckMaskPart(std::string_view name, std::span<const uint8_t> values, int64_t planes,
                     int axes) {
    // Divided, not multiplied: planes · S · S may not fit 64 bits.
    const auto got = static_cast<int64_t>(values.size());
    const int64_t plane = axes == 1 ? tokens_ : tokens_ * tokens_;
    if (tokens_ > 0 && (got % planes != 0 || got / planes != plane)) {
      Add("LENGTH_MISMATCH", name, [&] {
        return absl::StrCat("expected ", planes == 1 ? "" : absl::StrCat(planes, " x "), tokens_,
                            axes == 1 ? "" : absl::StrCat(" x ", tokens_), " bytes, got ", got);
      });
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] <= 1) continue;
      faults_.Add(
          "MASK_VALUE", [&] { return Field(name, i); },
          [&] {
            return absl::StrCat("expected 0 (hidden) or 1 (may be seen), got ",
                                static_cast<int>(values[i]));
          });
    }
  }

  void CheckSpans() {
    const auto& spans = sequence_.spans;
    if (spans.empty()) return;
    // visible[i]: how many of the first i tokens the key mask shows, so that a span costs two looks
    // whatever its length.
    const std::span<const uint8_t> keys = sequence_.mask.keys;
    std::vector<size_t> visible(1, 0);
    visible.reserve(keys.size() + 1);
    for (const uint8_t key : keys) visible.push_back(visible.back() + (key != 0));

    for (size_t i = 0; i < spans.size(); ++i) {
      const auto [begin, end] = spans[i];
      if (begin >= end || (tokens_ > 0 && end > tokens_)) {
        faults_.Add(
            "SPAN_OUT_OF_RANGE", [&] { return Field("spans", i); },
            [&] {
              return absl::StrCat(
                  "expected begin < end <= ", tokens_ > 0 ? absl::StrCat(tokens_) : "S", ", got [",
                  begin, ", ", end, ")");
            });
      } else if (end <= keys.size() && visible[begin] == visible[end]) {
        faults_.Add(
            "MASK_HIDES_ALL", [&] { return Field("spans", i); },
            [&] {
              return absl::StrCat("mask.keys hides every token of [", begin, ", ", end,
                                  "): expected at least one that may be seen");
            });
      }
    }
  }

  // Per-token lists are empty or have S values.
  void CheckListLength(std::string_view name, size_t got) {
    if (got == 0 || tokens_ == 0 || got == static_cast<size_t>(tokens_)) return;
    Add("LENGTH_MISMATCH", name,
        [&] { return absl::StrCat("expected ", tokens_, " values, one per token, got ", got); });
  }

  void CheckRange(std::string_view reason, std::string_view name, const char* what,
                  std::span<const int32_t> values, int64_t limit) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] >= 0 && values[i] < limit) continue;
      faults_.Add(
          reason, [&] { return Field(name, i); },
          [&] {
            return absl::StrCat(what, " ", values[i], " is not in the range 0 to ", limit - 1);
          });
    }
  }

  // At most 8 axes are shown: a shape is as long as the caller made it.
  static std::string ShapeText(std::span<const int64_t> shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size() && i < 8; ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ", ", shape[i]);
    }
    absl::StrAppend(&text, shape.size() > 8 ? ", ...]" : "]");
    return text;
  }

  const EncoderSpec& spec_;
  const RequestLimits& limits_;
  const Sequence& sequence_;
  const size_t index_;
  Faults& faults_;
  int64_t tokens_ = 0;  // S, 0 while or when it is not known
};

}  // namespace

int64_t CheckSequence(const EncoderSpec& spec, const RequestLimits& limits, const Request& request,
                      size_t index, Faults& faults) {
  return SequenceCheck(spec, limits, request, index, faults).Run();
}

}  // namespace encoderd::validation
