#include "engine/answer_writer.h"

#include <algorithm>
#include <string>

#include "absl/log/check.h"
#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"

namespace encoderd {
namespace {

size_t PooledBytes(const EncoderSpec& spec) {
  return static_cast<size_t>(StepRunner::kRows * spec.widest_hidden()) * sizeof(float);
}

// Where the item's rows begin in what is per token, and in what is pooled.
int64_t FirstRow(const BatchItem& item) {
  return item.plan->token_offsets[item.plan->PlaceOf(item.sequence)];
}
int64_t FirstPooledRow(const BatchItem& item) {
  return item.plan->pooled_offsets[item.plan->PlaceOf(item.sequence)];
}

// ReLU turns NaN into 0, so what enters a head is looked at as well as what leaves it.
void CheckHeadInput(BatchItem& item, const HiddenRows& hidden, std::string_view head) {
  if (!AllFinite(hidden)) {
    AnswerWriter::Fail(item, absl::StrCat("the input of ", std::string(head)));
  }
}

void KeepHidden(const BatchItem& item, const HiddenRows& hidden) {
  float* dst = item.hidden.data();
  for (const HiddenRows::Piece& piece : hidden.pieces) {
    dst = std::ranges::copy(hidden.Floats(piece), dst).out;
  }
  CHECK_EQ(dst - item.hidden.data(), static_cast<int64_t>(item.hidden.size()));
}

Span WholeOf(const BatchItem& item) {
  const Sequence& sequence = item.request->sequences[item.sequence];
  return {.begin = 0, .end = static_cast<uint32_t>(sequence.tokens())};
}

// What the pooling makes of a range of the item's sequence, whose hidden tokens it leaves out.
void PoolRange(const BatchItem& item, const HiddenRows& hidden, Pooling kind, const Span& range,
               std::span<float> vector) {
  const Sequence& sequence = item.request->sequences[item.sequence];
  Pool(kind, {.hidden = hidden, .keys = sequence.mask.keys, .range = range}, vector);
}

}  // namespace

int64_t AnswerWriter::ScratchBytes(const EncoderSpec& spec) {
  return static_cast<int64_t>(PooledBytes(spec));
}

absl::StatusOr<AnswerWriter> AnswerWriter::Create(const EncoderSpec& spec,
                                                  const EncoderWeights& weights) {
  AnswerWriter writer(spec, weights);
  ASSIGN_OR_RETURN(writer.pooled_, Buffer::AllocateLasting(PooledBytes(spec), "pooled rows"));
  return writer;
}

void AnswerWriter::Fail(BatchItem& item, std::string_view output) {
  if (!item.status.ok()) return;
  item.status = absl::InternalError(absl::StrCat(
      "sequences[", item.sequence, "]: ", std::string(output),
      " is not finite, or beyond the range of ", std::string(DataTypeName(item.plan->dtype)),
      ": expected finite numbers; check the weights and the input for extreme values"));
}

void AnswerWriter::WriteHiddenState(BatchItem& item, const HiddenRows& hidden, int64_t layer) {
  const Plan& plan = *item.plan;
  if (!spec_->is_behind_final_norm(layer)) WriteRowsOfLayer(item, hidden, layer);
  for (size_t i = 0; i < plan.pooled.size(); ++i) {
    if (plan.pooled[i].layer == layer) WritePooledVectors(item, hidden, i);
  }
  if (plan.keeps_hidden && plan.layers_run == layer) KeepHidden(item, hidden);
}

void AnswerWriter::WriteRowsOfLayer(BatchItem& item, const HiddenRows& hidden, int64_t layer) {
  const Plan& plan = *item.plan;
  const auto found = std::ranges::find(plan.hidden_layers, layer);
  if (found == plan.hidden_layers.end()) return;
  AnswerTensor& tensor =
      item.answer->hidden_states[static_cast<size_t>(found - plan.hidden_layers.begin())];
  if (!WriteRows(hidden, FirstRow(item), plan.dtype, tensor)) {
    Fail(item, absl::StrCat("hidden state ", layer));
  }
}

absl::Status AnswerWriter::WriteFinal(BatchItem& item, const HiddenRows& hidden,
                                      StepRunner& steps) {
  const Plan& plan = *item.plan;
  if (spec_->final_norm_in_hidden_states) WriteRowsOfLayer(item, hidden, spec_->num_layers);
  if (plan.last_hidden_state &&
      !WriteRows(hidden, FirstRow(item), plan.dtype, item.answer->last_hidden_state)) {
    Fail(item, "last_hidden_state");
  }
  for (size_t i = 0; i < plan.pooled.size(); ++i) {
    if (plan.pooled[i].layer.has_value()) continue;
    if (plan.pooled[i].kind == Pooling::kPooler || plan.pooled[i].projected) {
      CheckHeadInput(item, hidden, absl::StrCat("pooled[", i, "]"));
      RETURN_IF_ERROR(WriteThroughSteps(item, hidden, i, steps));
    } else {
      WritePooledVectors(item, hidden, i);
    }
  }
  if (!plan.logits) return absl::OkStatus();
  CheckHeadInput(item, hidden, "logits");
  return plan.logits_per_sequence ? WriteSequenceLogits(item, hidden, steps)
                                  : WriteTokenLogits(item, hidden, steps);
}

// What the pooled vectors of a sequence are made of: its spans, or all of it.
std::span<const Span> AnswerWriter::RangesOf(const BatchItem& item) {
  const Sequence& sequence = item.request->sequences[item.sequence];
  if (!sequence.spans.empty()) return sequence.spans;
  whole_ = WholeOf(item);
  return {&whole_, 1};
}

void AnswerWriter::WritePooledVectors(BatchItem& item, const HiddenRows& hidden, size_t output) {
  const Plan& plan = *item.plan;
  const std::span<float> vector = pooled_.floats().first(static_cast<size_t>(hidden.width));
  int64_t row = FirstPooledRow(item);
  for (const Span& range : RangesOf(item)) {
    PoolRange(item, hidden, plan.pooled[output].kind, range, vector);
    if (!WritePooled(vector, plan.pooled[output], row++, plan.dtype, item.answer->pooled[output])) {
      Fail(item, absl::StrCat("pooled[", output, "]"));
    }
  }
}

// The checkpoint's own pooler, which reads the first token of each range as BertPooler does, or the
// projection of pooled vectors.
absl::Status AnswerWriter::WriteThroughSteps(BatchItem& item, const HiddenRows& hidden,
                                             size_t output, StepRunner& steps) {
  const PooledOutput& pooled = item.plan->pooled[output];
  const auto& steps_of_vector = pooled.projected ? weights_->projection : weights_->pooler;
  const int64_t out =
      WidthAfter(pooled.projected ? spec_->projection : spec_->pooler, hidden.width);
  const auto width = static_cast<size_t>(hidden.width);
  const std::span<const Span> ranges = RangesOf(item);
  int64_t row = FirstPooledRow(item);
  for (size_t first = 0; first < ranges.size(); first += StepRunner::kRows) {
    const size_t count = std::min<size_t>(StepRunner::kRows, ranges.size() - first);
    for (size_t i = 0; i < count; ++i) {
      const std::span<float> vector = pooled_.floats().subspan(i * width, width);
      const Span& range = ranges[first + i];
      if (pooled.projected) {
        PoolRange(item, hidden, pooled.kind, range, vector);
      } else {
        std::copy_n(hidden.Row(range.begin), width, vector.begin());
      }
    }
    ASSIGN_OR_RETURN(float* result, steps.Run(steps_of_vector, pooled_.floats().data(),
                                              static_cast<int64_t>(count)));
    for (size_t i = 0; i < count; ++i, result += out) {
      if (!WritePooled({result, static_cast<size_t>(out)}, pooled, row++, item.plan->dtype,
                       item.answer->pooled[output])) {
        Fail(item, absl::StrCat("pooled[", output, "]"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status AnswerWriter::WriteTokenLogits(BatchItem& item, const HiddenRows& hidden,
                                            StepRunner& steps) {
  AnswerTensor& logits = item.answer->logits;
  int64_t dst_row = FirstRow(item);
  for (const HiddenRows::Piece& piece : hidden.pieces) {
    for (int64_t row = 0; row < piece.tokens; row += StepRunner::kRows) {
      const int64_t count = std::min(StepRunner::kRows, piece.tokens - row);
      ASSIGN_OR_RETURN(const float* result,
                       steps.Run(weights_->logits, piece.rows + row * hidden.width, count));
      if (!WriteRows({result, static_cast<size_t>(count * logits.shape.back())}, dst_row,
                     item.plan->dtype, logits)) {
        Fail(item, "logits");
      }
      dst_row += count;
    }
  }
  return absl::OkStatus();
}

absl::Status AnswerWriter::WriteSequenceLogits(BatchItem& item, const HiddenRows& hidden,
                                               StepRunner& steps) {
  const std::span<float> vector = pooled_.floats().first(static_cast<size_t>(hidden.width));
  if (spec_->classifier_pooling == Pooling::kCls) {
    // The first token, whatever the mask says, as the classes of transformers take it.
    std::copy_n(hidden.Row(0), hidden.width, vector.data());
  } else {
    PoolRange(item, hidden, spec_->classifier_pooling, WholeOf(item), vector);
  }
  ASSIGN_OR_RETURN(const float* result, steps.Run(weights_->classifier, vector.data(), 1));
  AnswerTensor& logits = item.answer->logits;
  if (!WriteRows({result, static_cast<size_t>(logits.shape.back())},
                 item.plan->FirstLogitsRow(item.plan->PlaceOf(item.sequence)), item.plan->dtype,
                 logits)) {
    Fail(item, "logits");
  }
  return absl::OkStatus();
}

}  // namespace encoderd
