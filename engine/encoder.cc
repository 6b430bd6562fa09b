#include "engine/encoder.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/log/check.h"
#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"

namespace encoderd {
namespace {

// Operations of a block below which waking a helper costs more than it brings: some 0.3 ms of a
// core.
constexpr int64_t kLeastSharedOperations = 50'000'000;

// Of the products of a block, for one token.
int64_t OperationsPerToken(const EncoderSpec& spec) {
  const int64_t ffn_products = spec.gate == Gate::kNone ? 2 : 3;
  return 2 * spec.hidden_size * (4 * spec.hidden_size + ffn_products * spec.ffn_size);
}

// Of a pass.
int64_t MaxTokens(const BatchLimits& limits) {
  return std::max(limits.max_batch_tokens, limits.max_sequence_tokens);
}

}  // namespace

int64_t Encoder::ScratchBytes(const EncoderSpec& spec, const EncoderWeights& weights,
                              const BatchLimits& limits) {
  return BlockRunner::ScratchBytes(spec, weights, limits.max_sequence_tokens) +
         Embedder::ScratchBytes(spec) + AnswerWriter::ScratchBytes(spec) +
         StepRunner::ScratchBytes(spec, weights) +
         (spec.has_contacts() ? Contacts::ScratchBytes(spec, MaxTokens(limits)) : 0);
}

absl::StatusOr<std::unique_ptr<Encoder>> Encoder::Create(const Shared& shared) {
  ASSIGN_OR_RETURN(auto runner, BlockRunner::Create(shared.spec, shared.weights,
                                                    shared.limits.max_sequence_tokens));
  ASSIGN_OR_RETURN(auto embedder, Embedder::Create(shared.spec, shared.weights));
  ASSIGN_OR_RETURN(auto writer, AnswerWriter::Create(shared.spec, shared.weights));
  ASSIGN_OR_RETURN(auto steps, StepRunner::Create(shared.spec, shared.weights));
  std::optional<Contacts> contacts;
  if (shared.spec.has_contacts()) {
    ASSIGN_OR_RETURN(contacts,
                     Contacts::Create(shared.spec, shared.weights, MaxTokens(shared.limits)));
  }
  ASSIGN_OR_RETURN(const int seat, shared.memory.Join());
  return std::unique_ptr<Encoder>(new Encoder(shared, seat, std::move(runner), std::move(embedder),
                                              std::move(writer), std::move(steps),
                                              std::move(contacts)));
}

// ---- The pass -----------------------------------------------------------------------------------

absl::Status Encoder::Run(std::span<BatchItem> items, absl::FunctionRef<bool()> abandoned) {
  if (shared_.helpers != nullptr) shared_.helpers->BatchBegins();
  const absl::Cleanup end = [&] {
    layout_ = {};
    rows_ = {};
    if (shared_.helpers != nullptr) shared_.helpers->BatchEnds();
  };
  items_.clear();
  for (BatchItem& item : items) {
    item.status = absl::OkStatus();
    items_.push_back(&item);
  }
  const auto first_block = [](const BatchItem* item) { return item->plan->first_block; };
  std::ranges::stable_sort(items_, {}, first_block);
  for (std::span<BatchItem* const> rest = items_; !rest.empty();) {
    const auto pass_end = std::ranges::upper_bound(rest, first_block(rest[0]), {}, first_block);
    const auto pass = rest.first(static_cast<size_t>(pass_end - rest.begin()));
    RETURN_IF_ERROR(RunPass(pass, abandoned));
    rest = rest.subspan(pass.size());
  }
  return absl::OkStatus();
}

absl::Status Encoder::RunPass(std::span<BatchItem* const> items,
                              absl::FunctionRef<bool()> abandoned) {
  Place(items);
  const int64_t first_block = items[0]->plan->first_block;
  RETURN_IF_ERROR(Begin(first_block));
  const auto runs = [&](int64_t layer) {
    return layer < spec_.num_layers && layout_->TilesBeyond(2 * layer) > 0;
  };
  for (int64_t layer = first_block; runs(layer); ++layer) {
    if (abandoned()) {
      return absl::CancelledError(
          absl::StrCat("the batch was abandoned before block ", layer, " of ", spec_.num_layers));
    }
    if (layer == first_block) RETURN_IF_ERROR(RunPhase(std::nullopt, layer));
    RETURN_IF_ERROR(RunPhase(layer, runs(layer + 1) ? std::optional(layer + 1) : std::nullopt));
    WriteHiddenState(layer + 1);
  }
  return WriteFinal();
}

void Encoder::Place(std::span<BatchItem* const> items) {
  // What the pass before had goes first: there is no more than one pass needs.
  layout_ = {};
  rows_ = {};
  layout_ = shared_.memory.TakeLayout(seat_);
  int64_t tokens = 0;
  for (const BatchItem* item : items) tokens += item->request->sequences[item->sequence].tokens();
  const BatchLimits& limits = shared_.limits;
  CHECK(tokens <= limits.max_batch_tokens || items.size() == 1) << "more tokens than a batch has";
  CHECK_LE(tokens, MaxTokens(limits));

  const bool worth_it = tokens * OperationsPerToken(spec_) >= kLeastSharedOperations;
  const bool helped = shared_.helpers != nullptr && worth_it;
  const int threads =
      helped ? 1 + std::min(shared_.helpers->IdleWorkers(), PhaseShape::kMaxHelpersOfPhase) : 1;
  layout_->Place(items, BatchLayout::TileRows(tokens, threads, items.size() == 1));
  CHECK_LE(layout_->StoredRows(), BatchLayout::MaxStoredRows(limits));
  if (contacts_.has_value()) contacts_->Begin(layout_->sequences());
  shown_ = false;
  may_share_ = helped && layout_->tiles().size() > 1 && layout_->CanOwnMasks();
}

absl::Status Encoder::Begin(int64_t first_block) {
  rows_ = shared_.memory.TakeGeneration(seat_);
  results_.clear();
  for (const Tile& tile : layout_->tiles()) {
    results_.push_back(rows_->First(tile));
    float* const rows = results_.back().hidden;
    if (first_block == 0) {
      const OpTimer timer(OpKind::kEmbedding);
      RETURN_IF_ERROR(embedder_.Run(*layout_, tile, steps_, rows));
      continue;
    }
    for (const Segment& segment : layout_->SegmentsOf(tile)) {
      const PlacedSequence& sequence = layout_->SequenceOf(segment);
      const std::span<const float> kept = sequence.item->hidden;
      CHECK_EQ(static_cast<int64_t>(kept.size()), sequence.tokens * spec_.hidden_size);
      std::copy_n(kept.data() + segment.first_token * spec_.hidden_size,
                  segment.tokens * spec_.hidden_size, rows + segment.row * spec_.hidden_size);
    }
  }
  if (first_block == 0) WriteHiddenState(0);
  return absl::OkStatus();
}

// ---- Phases -------------------------------------------------------------------------------------

absl::Status Encoder::RunPhase(std::optional<int64_t> attend, std::optional<int64_t> project) {
  BlockPhase& phase = *shared_.memory.TakePhase(seat_);
  phase.maps.clear();
  if (attend.has_value()) ListMaps(*attend, phase.maps);
  const bool contacts = attend.has_value() && contacts_.has_value() && contacts_->wanted();
  phase.contacts = contacts ? &*contacts_ : nullptr;
  const int tiles = layout_->TilesBeyond(2 * attend.value_or(project.value_or(0)));
  const bool shared = Shares(tiles, !phase.maps.empty() || contacts);
  FillPhase(phase, attend, project, /*in_place=*/!attend.has_value() || WritesInPlace(shared));
  if (shared && !std::exchange(shown_, true)) layout_->OwnMasks();
  phase.tiles.Open(tiles, shared);
  if (shared) shared_.helpers->Offer(seat_, phase, tiles);
  const absl::Status status = ComputeTiles(phase);
  if (shared) shared_.helpers->Withdraw(seat_);
  if (status.ok()) TakeResults(phase, tiles);
  if (contacts) contacts_->EndBlock(*attend);
  if (phase.tiles.Close()) phase.Release();
  return status;
}

// In place: what is written is still in cache from when it was read.
void Encoder::FillPhase(BlockPhase& phase, std::optional<int64_t> attend,
                        std::optional<int64_t> project, bool in_place) {
  phase.layout = layout_;
  phase.in = rows_;
  phase.out = in_place ? rows_ : shared_.memory.TakeGeneration(seat_);
  phase.attend = attend;
  phase.project = project;
  phase.input.assign(results_.begin(), results_.end());
  phase.first.clear();
  for (const Tile& tile : layout_->tiles()) phase.first.push_back(phase.out->First(tile));
  phase.second.assign(phase.first.size(), {});
  if (!attend.has_value()) return;
  for (size_t i = 0; i < layout_->sequences().size(); ++i) {
    phase.bad_scores[i].store(false, std::memory_order_relaxed);
  }
}

void Encoder::ListMaps(int64_t layer, std::vector<ops::MapOutput>& maps) const {
  bool any = false;
  for (const PlacedSequence& sequence : layout_->sequences()) {
    const Plan& plan = *sequence.item->plan;
    ops::MapOutput& map = maps.emplace_back();
    const auto found = std::ranges::find(plan.attention_layers, layer);
    if (found == plan.attention_layers.end()) continue;
    const size_t place = plan.PlaceOf(sequence.item->sequence);
    const size_t index = place * plan.attention_layers.size() +
                         static_cast<size_t>(found - plan.attention_layers.begin());
    map = {.type = plan.dtype,
           .heads = plan.attention_heads,
           .rows = plan.query_rows,
           .dst = sequence.item->answer->attentions[index].tensor.data.data()};
    any = true;
  }
  if (!any) maps.clear();
}

// A tile may overwrite the rows that it reads where no other tile reads them and no helper has ever
// been near: one that is late may still read. Without a norm, or without an FFN, the last product
// would overwrite its own residual.
bool Encoder::WritesInPlace(bool shared) const {
  return !shared && !shown_ && !layout_->cut() && spec_.norm != NormPlacement::kNone &&
         spec_.ffn_size > 0;
}

bool Encoder::Shares(int tiles, bool maps) const {
  return may_share_ && tiles > 1 && !maps && shared_.helpers->IdleWorkers() > 0;
}

absl::Status Encoder::ComputeTiles(BlockPhase& phase) {
  int seconds = 0;  // second copies that count
  int last = -1;    // tile of the last second copy
  return phase.tiles.Finish([&](int tile, TilePhase::Copy copy, absl::FunctionRef<bool()> stop) {
    const auto at = static_cast<size_t>(tile);
    if (copy == TilePhase::Copy::kFirst) return runner_->Run(phase, tile, phase.first[at], stop);
    if (last >= 0 && phase.tiles.result(last) == TilePhase::Copy::kSecond) ++seconds;
    last = tile;
    phase.second[at] = phase.out->Second(seconds);
    return runner_->Run(phase, tile, phase.second[at], stop);
  });
}

void Encoder::TakeResults(const BlockPhase& phase, int tiles) {
  for (int tile = 0; tile < tiles; ++tile) {
    const auto at = static_cast<size_t>(tile);
    const bool first = phase.tiles.result(tile) == TilePhase::Copy::kFirst;
    const TileRows& result = first ? phase.first[at] : phase.second[at];
    if (phase.attend.has_value()) results_[at].hidden = result.hidden;
    results_[at].qkv = result.qkv;
  }
  rows_ = phase.out;
  if (!phase.attend.has_value()) return;
  for (size_t i = 0; i < layout_->sequences().size(); ++i) {
    if (phase.bad_scores[i].load(std::memory_order_relaxed)) {
      AnswerWriter::Fail(*layout_->sequences()[i].item, "attention");
    }
  }
}

// ---- Outputs ------------------------------------------------------------------------------------

// Points to the sequence's rows until the next call.
HiddenRows Encoder::RowsOf(const PlacedSequence& sequence, int64_t width) {
  pieces_.clear();
  for (const Segment& segment : layout_->SegmentsOf(sequence)) {
    const float* const rows = results_[static_cast<size_t>(segment.tile)].hidden;
    pieces_.push_back({.rows = rows + segment.row * width, .tokens = segment.tokens});
  }
  return {.pieces = pieces_, .width = width};
}

void Encoder::WriteHiddenState(int64_t layer) {
  const OpTimer timer(OpKind::kOutputs);
  const int64_t width = spec_.hidden_width(layer);
  for (const PlacedSequence& sequence : layout_->sequences()) {
    if (sequence.item->plan->layers_run < layer) continue;
    writer_.WriteHiddenState(*sequence.item, RowsOf(sequence, width), layer);
  }
}

absl::Status Encoder::WriteFinal() {
  const OpTimer timer(OpKind::kOutputs);
  if (contacts_.has_value()) contacts_->Write();
  const int64_t behind_all = 2 * spec_.num_layers;
  for (size_t i = 0; shared_.weights.final_norm.has_value() && i < results_.size(); ++i) {
    const int64_t rows = layout_->RowsBeyond(layout_->tiles()[i], behind_all);
    if (rows == 0) break;
    shared_.weights.final_norm->Run(results_[i].hidden, rows, results_[i].hidden);
  }
  for (const PlacedSequence& sequence : layout_->sequences()) {
    if (sequence.half_blocks <= behind_all) continue;
    RETURN_IF_ERROR(
        writer_.WriteFinal(*sequence.item, RowsOf(sequence, spec_.hidden_size), steps_));
  }
  return absl::OkStatus();
}

}  // namespace encoderd
