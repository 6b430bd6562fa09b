#include "engine/encoder.h"

#include <algorithm>
#include <cstring>

#include "absl/log/check.h"
#include "absl/strings/str_cat.h"
#include "engine/outputs.h"
#include "engine/status_macros.h"
#include "engine/tensor/convert.h"

namespace encoderd {
namespace {

// Rows that go through the heads at a time: their widest step is the vocabulary, and 64 rows of it
// are 8 MB for BERT's.
constexpr int64_t kStepRows = 64;
static_assert(kStepRows % ops::RowBuckets::kStep == 0 && kStepRows == ops::RowBuckets::kFixedRows,
              "step rows are a whole bucket, so nothing is written behind them");

// How far a sequence runs, in half blocks: a map needs the first half of its block, and the final
// norm counts as the half block behind the last block.
int64_t HalfBlocks(const Plan& plan) {
  return 2 * plan.layers_run + (plan.last_map_only || plan.final_norm_needed ? 1 : 0);
}

// Position of `value` in the list, or -1.
template <typename List, typename Value>
int64_t IndexOf(const List& list, const Value& value) {
  const auto found = std::find(list.begin(), list.end(), value);
  return found == list.end() ? -1 : found - list.begin();
}

void Fail(BatchItem& item, std::string_view output) {
  if (!item.status.ok()) return;
  item.status = absl::InternalError(absl::StrCat(
      "sequences[", item.sequence, "]: ", std::string(output),
      " is not finite, or beyond the range of ", std::string(DataTypeName(item.plan->dtype)),
      ": expected finite numbers; check the weights and the input for extreme values"));
}

}  // namespace

// ---- Scratch ------------------------------------------------------------------------------------

namespace {

struct ScratchSizes {
  int64_t hidden, inner, qkv, context, ffn, input, steps, pooled;  // fp32 values
};

ScratchSizes SizesOf(const EncoderSpec& spec, int64_t max_tokens) {
  const int64_t rows = max_tokens + ops::RowBuckets::kPaddingRows;
  const int64_t chunk = ops::RowBuckets::kMaxRows + ops::RowBuckets::kPaddingRows;
  const int64_t width = std::max(spec.embedding_size(), spec.hidden_size);
  int64_t widest_step = 0;
  for (const auto* steps : {&spec.input_steps, &spec.logits, &spec.pooler}) {
    for (const Step& step : *steps) widest_step = std::max(widest_step, step.out);
  }
  return {.hidden = rows * width,
          .inner = rows * width,
          .qkv = rows * 3 * spec.hidden_size,
          .context = rows * spec.hidden_size,
          .ffn = chunk * spec.ffn_size,
          .input = spec.input_steps.empty() ? 0 : rows * spec.input_size(),
          .steps = kStepRows * widest_step,
          .pooled = kStepRows * width};
}

// Zeroed, since what lies behind the rows in use is computed with, though never read: it must be
// neither slow nor trap. Pages that no batch has reached stay untouched, so memory follows the
// longest sequence seen.
absl::StatusOr<Buffer> AllocateFloats(int64_t floats, std::string_view what) {
  return Buffer::AllocateZeroed(static_cast<size_t>(floats) * sizeof(float), what);
}

}  // namespace

int64_t Encoder::ScratchBytes(const EncoderSpec& spec, const EncoderWeights& weights,
                              int64_t max_tokens) {
  const ScratchSizes s = SizesOf(spec, max_tokens);
  const int64_t floats =
      s.hidden + s.inner + s.qkv + s.context + s.ffn + s.input + 2 * s.steps + s.pooled;
  return floats * static_cast<int64_t>(sizeof(float)) +
         static_cast<int64_t>(weights.attention.scratch_bytes(max_tokens) +
                              weights.scratchpad_bytes());
}

absl::StatusOr<std::unique_ptr<Encoder>> Encoder::Create(const EncoderSpec& spec,
                                                         const EncoderWeights& weights,
                                                         int64_t max_tokens) {
  std::unique_ptr<Encoder> encoder(new Encoder(spec, weights, max_tokens));
  const ScratchSizes sizes = SizesOf(spec, max_tokens);
  Scratch& scratch = encoder->scratch_;
  ASSIGN_OR_RETURN(scratch.hidden, AllocateFloats(sizes.hidden, "hidden rows"));
  ASSIGN_OR_RETURN(scratch.inner, AllocateFloats(sizes.inner, "inner rows"));
  ASSIGN_OR_RETURN(scratch.qkv, AllocateFloats(sizes.qkv, "q, k and v"));
  ASSIGN_OR_RETURN(scratch.context, AllocateFloats(sizes.context, "attention context"));
  ASSIGN_OR_RETURN(scratch.ffn, AllocateFloats(sizes.ffn, "FFN rows"));
  ASSIGN_OR_RETURN(scratch.input, AllocateFloats(sizes.input, "input vectors"));
  for (Buffer& steps : scratch.steps) {
    ASSIGN_OR_RETURN(steps, AllocateFloats(sizes.steps, "rows of the heads"));
  }
  ASSIGN_OR_RETURN(scratch.pooled, AllocateFloats(sizes.pooled, "pooled rows"));
  ASSIGN_OR_RETURN(scratch.attention,
                   Buffer::Allocate(weights.attention.scratch_bytes(max_tokens), "attention"));
  ASSIGN_OR_RETURN(scratch.scratchpad, Buffer::Allocate(weights.scratchpad_bytes(), "scratchpad"));
  return encoder;
}

// ---- The pass -----------------------------------------------------------------------------------

absl::Status Encoder::Run(std::span<BatchItem> items, absl::FunctionRef<bool()> abandoned) {
  items_.clear();
  for (BatchItem& item : items) items_.push_back(&item);
  const auto first_block = [](const BatchItem* item) { return item->plan->first_block; };
  std::ranges::stable_sort(items_, {}, first_block);
  for (std::span<BatchItem* const> rest = items_; !rest.empty();) {
    const auto end = std::ranges::upper_bound(rest, first_block(rest[0]), {}, first_block);
    const auto pass = rest.first(static_cast<size_t>(end - rest.begin()));
    RETURN_IF_ERROR(RunPass(pass, abandoned));
    rest = rest.subspan(pass.size());
  }
  return absl::OkStatus();
}

absl::Status Encoder::RunPass(std::span<BatchItem* const> items,
                              absl::FunctionRef<bool()> abandoned) {
  Place(items);
  int64_t layer = items[0]->plan->first_block;
  RETURN_IF_ERROR(Begin(layer));
  for (; layer < spec_.num_layers && RowsRunningBeyond(2 * layer) > 0; ++layer) {
    if (abandoned()) {
      return absl::CancelledError(
          absl::StrCat("the batch was abandoned before block ", layer, " of ", spec_.num_layers));
    }
    RETURN_IF_ERROR(RunBlock(layer));
    WriteHiddenState(layer + 1);
  }
  return WriteFinal();
}

void Encoder::Place(std::span<BatchItem* const> items) {
  placed_.clear();
  for (BatchItem* item : items) {
    item->status = absl::OkStatus();
    placed_.push_back({.item = item,
                       .first_row = 0,
                       .tokens = item->request->sequences[item->sequence].tokens()});
  }
  std::stable_sort(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) {
    return HalfBlocks(a.plan()) > HalfBlocks(b.plan());
  });
  int64_t next_row = 0;
  for (Placed& placed : placed_) {
    placed.first_row = next_row;
    next_row += placed.tokens;
  }
  CHECK_LE(next_row, max_tokens_) << "Worker::Run: more tokens than the batch may have";
}

int64_t Encoder::RowsRunningBeyond(int64_t half_blocks) const {
  int64_t rows = 0;
  for (const Placed& placed : placed_) {
    if (HalfBlocks(placed.plan()) > half_blocks) rows += placed.tokens;
  }
  return rows;
}

// ---- Embeddings ---------------------------------------------------------------------------------

absl::Status Encoder::Begin(int64_t first_block) {
  if (first_block == 0) {
    RETURN_IF_ERROR(Embed());
    WriteHiddenState(0);
    return absl::OkStatus();
  }
  float* const rows = scratch_.hidden.floats().data();
  for (const Placed& placed : placed_) {
    CHECK_EQ(static_cast<int64_t>(placed.item->hidden.size()), placed.tokens * spec_.hidden_size);
    std::ranges::copy(placed.item->hidden, rows + placed.first_row * spec_.hidden_size);
  }
  return absl::OkStatus();
}

absl::Status Encoder::Embed() {
  float* const hidden = scratch_.hidden.floats().data();
  const bool has_input_steps = !weights_.input_steps.empty();
  const int64_t width = spec_.input_size();
  float* const input = has_input_steps ? scratch_.input.floats().data() : hidden;

  int64_t total_rows = 0;
  for (const Placed& placed : placed_) {
    float* const rows = input + placed.first_row * width;
    if (const auto& embeds = placed.sequence().inputs_embeds; embeds.has_value()) {
      WidenToFp32(embeds->dtype, embeds->data, {rows, static_cast<size_t>(placed.tokens * width)});
    } else {
      EmbedTokens(placed, rows);
    }
    total_rows += placed.tokens;
  }
  for (int64_t row = 0; has_input_steps && row < total_rows; row += kStepRows) {
    const int64_t count = std::min(kStepRows, total_rows - row);
    ASSIGN_OR_RETURN(const float* result,
                     RunSteps(weights_.input_steps, input + row * width, count));
    std::copy_n(result, count * spec_.embedding_size(), hidden + row * spec_.embedding_size());
  }
  for (const Placed& placed : placed_) {
    AddPositionsAndTypes(placed, hidden + placed.first_row * spec_.embedding_size());
  }
  if (!weights_.embedding_norm.has_value()) return absl::OkStatus();
  return weights_.embedding_norm->Run(hidden, total_rows, hidden, scratch_.scratchpad.bytes());
}

void Encoder::EmbedTokens(const Placed& placed, float* rows) const {
  const int64_t width = spec_.hidden_size;
  const float* const words = weights_.words.floats().data();
  for (const int32_t id : placed.sequence().input_ids) {
    std::copy_n(words + id * width, width, rows);
    rows += width;
  }
}

void Encoder::AddPositionsAndTypes(const Placed& placed, float* rows) const {
  const int64_t width = spec_.embedding_size();
  const Sequence& sequence = placed.sequence();
  auto add = [width](const float* vector, float* row) {
    for (int64_t i = 0; i < width; ++i) row[i] += vector[i];
  };
  for (int64_t token = 0; token < placed.tokens; ++token, rows += width) {
    const auto at = static_cast<size_t>(token);
    if (spec_.type_vocab_size > 0) {
      const int64_t type = sequence.token_type_ids.empty() ? 0 : sequence.token_type_ids[at];
      add(weights_.types.floats().data() + type * width, rows);
    }
    if (spec_.positions != PositionKind::kNone) {
      const int64_t position = sequence.position_ids.empty() ? token : sequence.position_ids[at];
      add(weights_.positions.floats().data() + position * width, rows);
    }
  }
}

// ---- Blocks -------------------------------------------------------------------------------------

absl::Status Encoder::RunBlock(int64_t layer) {
  const BlockWeights& block = weights_.blocks[static_cast<size_t>(layer)];
  const float* input = scratch_.hidden.floats().data();
  const int64_t attention_rows = RowsRunningBeyond(2 * layer);
  if (spec_.norm == NormPlacement::kPre) {
    float* const normed = scratch_.inner.floats().data();
    RETURN_IF_ERROR(block.norm1->Run(input, attention_rows, normed, scratch_.scratchpad.bytes()));
    input = normed;
  }
  // Matrices shared by the heads see each head of a token as a row of its own.
  const int64_t rows_per_token = spec_.hidden_width(layer) / block.qkv.in();
  RETURN_IF_ERROR(block.qkv.Run(input, attention_rows * rows_per_token, /*residual=*/nullptr,
                                scratch_.qkv.floats().data(), scratch_.scratchpad.bytes()));
  RunAttention(layer);

  // The rest of a block treats rows alone: in chunks, so that what one operation writes is in cache
  // when the next one reads it.
  const int64_t rows = RowsRunningBeyond(2 * layer + 1);
  for (int64_t first = 0; first < rows; first += ops::RowBuckets::kMaxRows) {
    RETURN_IF_ERROR(RunRowWise(block, first, std::min(ops::RowBuckets::kMaxRows, rows - first)));
  }
  return absl::OkStatus();
}

void Encoder::RunAttention(int64_t layer) {
  for (const Placed& placed : placed_) {
    const Plan& plan = placed.plan();
    const bool needs_context = plan.layers_run > layer;
    const int64_t map_index = IndexOf(plan.attention_layers, layer);
    if (!needs_context && map_index < 0) continue;

    ops::MapOutput map = {
        .type = plan.dtype, .heads = plan.attention_heads, .rows = plan.query_rows};
    if (map_index >= 0) {
      const size_t index =
          placed.place() * plan.attention_layers.size() + static_cast<size_t>(map_index);
      map.dst = placed.item->answer->attentions[index].tensor.data.data();
    }
    const bool finite = weights_.attention.Run(
        {.qkv = scratch_.qkv.floats().data() + placed.first_row * 3 * spec_.hidden_size,
         .tokens = placed.tokens,
         .queries = placed.tokens,
         .mask = &placed.sequence().mask,
         .context = needs_context
                        ? scratch_.context.floats().data() + placed.first_row * spec_.hidden_size
                        : nullptr,
         .map = map_index >= 0 ? &map : nullptr},
        scratch_.attention.bytes());
    if (!finite) Fail(*placed.item, "attention");
  }
}

absl::Status Encoder::RunRowWise(const BlockWeights& block, int64_t first_row, int64_t rows) {
  const int64_t offset = first_row * spec_.hidden_size;
  const float* const context = scratch_.context.floats().data() + offset;
  float* const x = scratch_.hidden.floats().data() + offset;
  float* const sum = scratch_.inner.floats().data() + offset;
  float* const ffn = scratch_.ffn.floats().data();
  const std::span<std::byte> scratchpad = scratch_.scratchpad.bytes();

  RETURN_IF_ERROR(block.attention_output.Run(context, rows, x, sum, scratchpad));
  if (!block.ffn_in.has_value()) {
    if (spec_.norm == NormPlacement::kPost) return block.norm1->Run(sum, rows, x, scratchpad);
    std::copy_n(sum, rows * spec_.hidden_size, x);
    return absl::OkStatus();
  }
  switch (spec_.norm) {
    case NormPlacement::kPost:
      RETURN_IF_ERROR(block.norm1->Run(sum, rows, x, scratchpad));
      RETURN_IF_ERROR(block.ffn_in->Run(x, rows, nullptr, ffn, scratchpad));
      RETURN_IF_ERROR(block.ffn_out->Run(ffn, rows, x, sum, scratchpad));
      return block.norm2->Run(sum, rows, x, scratchpad);
    case NormPlacement::kPre:
      RETURN_IF_ERROR(block.norm2->Run(sum, rows, x, scratchpad));
      RETURN_IF_ERROR(block.ffn_in->Run(x, rows, nullptr, ffn, scratchpad));
      return block.ffn_out->Run(ffn, rows, sum, x, scratchpad);
    case NormPlacement::kNone:
      RETURN_IF_ERROR(block.ffn_in->Run(sum, rows, nullptr, ffn, scratchpad));
      return block.ffn_out->Run(ffn, rows, sum, x, scratchpad);
  }
  return absl::InternalError("unknown norm placement");
}

// The result lies in scratch until the next call. REQUIRES: rows ≤ kStepRows.
absl::StatusOr<float*> Encoder::RunSteps(const std::vector<StepWeights>& steps, const float* src,
                                         int64_t rows) {
  float* dst = nullptr;
  for (size_t i = 0; i < steps.size(); ++i) {
    dst = scratch_.steps[i % 2].floats().data();
    RETURN_IF_ERROR(steps[i].linear.has_value()
                        ? steps[i].linear->Run(src, rows, nullptr, dst, scratch_.scratchpad.bytes())
                        : steps[i].norm->Run(src, rows, dst, scratch_.scratchpad.bytes()));
    src = dst;
  }
  return dst;
}

// ---- Outputs ------------------------------------------------------------------------------------

std::span<const float> Encoder::HiddenRows(const Placed& placed, int64_t width) const {
  return scratch_.hidden.floats().subspan(static_cast<size_t>(placed.first_row * width),
                                          static_cast<size_t>(placed.tokens * width));
}

// Hidden state `layer` has just been computed: writes it, and what is pooled from it, where asked
// for.
void Encoder::WriteHiddenState(int64_t layer) {
  const int64_t width = spec_.hidden_width(layer);
  for (const Placed& placed : placed_) {
    const Plan& plan = placed.plan();
    if (plan.layers_run < layer) continue;
    if (const int64_t index = IndexOf(plan.hidden_layers, layer); index >= 0) {
      const bool finite =
          WriteRows(HiddenRows(placed, width), plan.token_offsets[placed.place()], plan.dtype,
                    placed.item->answer->hidden_states[static_cast<size_t>(index)]);
      if (!finite) Fail(*placed.item, absl::StrCat("hidden state ", layer));
    }
    for (size_t i = 0; i < plan.pooled.size(); ++i) {
      if (plan.pooled[i].layer == layer) WritePooledVectors(placed, i, width);
    }
    if (plan.keeps_hidden && plan.layers_run == layer) KeepHidden(placed);
  }
}

void Encoder::KeepHidden(const Placed& placed) const {
  const std::span<const float> rows = HiddenRows(placed, spec_.hidden_size);
  CHECK_EQ(placed.item->hidden.size(), rows.size());
  std::ranges::copy(rows, placed.item->hidden.begin());
}

// ReLU turns NaN into 0, so what enters a head is looked at as well as what leaves it.
void Encoder::CheckHeadInput(const Placed& placed, std::string_view head) const {
  if (!AllFinite(HiddenRows(placed, spec_.hidden_size))) {
    Fail(*placed.item, absl::StrCat("the input of ", std::string(head)));
  }
}

absl::Status Encoder::WriteFinal() {
  float* const hidden = scratch_.hidden.floats().data();
  if (weights_.final_norm.has_value()) {
    RETURN_IF_ERROR(weights_.final_norm->Run(hidden, RowsRunningBeyond(2 * spec_.num_layers),
                                             hidden, scratch_.scratchpad.bytes()));
  }
  for (const Placed& placed : placed_) {
    const Plan& plan = placed.plan();
    if (plan.last_hidden_state) {
      const bool finite =
          WriteRows(HiddenRows(placed, spec_.hidden_size), plan.token_offsets[placed.place()],
                    plan.dtype, placed.item->answer->last_hidden_state);
      if (!finite) Fail(*placed.item, "last_hidden_state");
    }
    for (size_t i = 0; i < plan.pooled.size(); ++i) {
      if (plan.pooled[i].layer.has_value()) continue;
      if (plan.pooled[i].kind == Pooling::kPooler) {
        CheckHeadInput(placed, "pooler");
        RETURN_IF_ERROR(WritePooler(placed, i));
      } else {
        WritePooledVectors(placed, i, spec_.hidden_size);
      }
    }
    if (plan.logits) {
      CheckHeadInput(placed, "logits");
      RETURN_IF_ERROR(WriteLogits(placed));
    }
  }
  return absl::OkStatus();
}

// What the pooled vectors of a sequence are made of: its spans, or all of it.
std::span<const Span> Encoder::RangesOf(const Placed& placed) {
  if (!placed.sequence().spans.empty()) return placed.sequence().spans;
  whole_ = {.begin = 0, .end = static_cast<uint32_t>(placed.tokens)};
  return {&whole_, 1};
}

void Encoder::WritePooledVectors(const Placed& placed, size_t output, int64_t width) {
  const Plan& plan = placed.plan();
  const std::span<float> vector = scratch_.pooled.floats().first(static_cast<size_t>(width));
  int64_t row = plan.pooled_offsets[placed.place()];
  for (const Span& range : RangesOf(placed)) {
    Pool(plan.pooled[output].kind,
         {.hidden = HiddenRows(placed, width),
          .width = width,
          .keys = placed.sequence().mask.keys,
          .range = range},
         vector);
    if (!WritePooled(vector, plan.pooled[output], row++, plan.dtype,
                     placed.item->answer->pooled[output])) {
      Fail(*placed.item, absl::StrCat("pooled[", output, "]"));
    }
  }
}

// The checkpoint's own pooler reads the first token of each range, as BertPooler does.
absl::Status Encoder::WritePooler(const Placed& placed, size_t output) {
  const Plan& plan = placed.plan();
  const int64_t width = spec_.hidden_size;
  const std::span<const Span> ranges = RangesOf(placed);
  float* const rows = scratch_.pooled.floats().data();
  for (size_t first = 0; first < ranges.size(); first += kStepRows) {
    const size_t count = std::min<size_t>(kStepRows, ranges.size() - first);
    for (size_t i = 0; i < count; ++i) {
      std::copy_n(HiddenRows(placed, width).data() + ranges[first + i].begin * width, width,
                  rows + static_cast<int64_t>(i) * width);
    }
    ASSIGN_OR_RETURN(float* result, RunSteps(weights_.pooler, rows, static_cast<int64_t>(count)));
    const int64_t out = WidthAfter(spec_.pooler, width);
    for (size_t i = 0; i < count; ++i, result += out) {
      const int64_t row = plan.pooled_offsets[placed.place()] + static_cast<int64_t>(first + i);
      if (!WritePooled({result, static_cast<size_t>(out)}, plan.pooled[output], row, plan.dtype,
                       placed.item->answer->pooled[output])) {
        Fail(*placed.item, absl::StrCat("pooled[", output, "]"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Encoder::WriteLogits(const Placed& placed) {
  const Plan& plan = placed.plan();
  AnswerTensor& logits = placed.item->answer->logits;
  const std::span<const float> hidden = HiddenRows(placed, spec_.hidden_size);
  for (int64_t row = 0; row < placed.tokens; row += kStepRows) {
    const int64_t count = std::min(kStepRows, placed.tokens - row);
    ASSIGN_OR_RETURN(const float* result,
                     RunSteps(weights_.logits, hidden.data() + row * spec_.hidden_size, count));
    if (!WriteRows({result, static_cast<size_t>(count * logits.shape.back())},
                   plan.token_offsets[placed.place()] + row, plan.dtype, logits)) {
      Fail(*placed.item, "logits");
    }
  }
  return absl::OkStatus();
}

}  // namespace encoderd
