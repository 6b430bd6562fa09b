#include "tests/server/fake_engine.h"

#include <time.h>

#include <new>
#include <utility>

#include "absl/log/check.h"
#include "engine/answer.h"
#include "engine/tensor/convert.h"

namespace encoderd {

void Latch::Close() {
  MutexLock lock(mutex_);
  open_ = false;
}

void Latch::Open() {
  MutexLock lock(mutex_);
  open_ = true;
  changed_.NotifyAll();
}

void Latch::Pass() {
  MutexLock lock(mutex_);
  ++waiting_;
  changed_.NotifyAll();
  while (!open_) changed_.Wait(mutex_);
  --waiting_;
}

void Latch::AwaitWaiting(int count) {
  MutexLock lock(mutex_);
  while (waiting_ < count) changed_.Wait(mutex_);
}

namespace {

// Fills rows [begin, end) of a tensor whose last axis has `columns` values.
template <typename Value>
void Fill(const AnswerTensor& tensor, DataType type, int64_t begin, int64_t end, int64_t columns,
          Value value) {
  std::vector<float> row(static_cast<size_t>(columns));
  const size_t row_bytes = row.size() * DataTypeBytes(type);
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t c = 0; c < columns; ++c) row[static_cast<size_t>(c)] = value(r - begin, c);
    NarrowFromFp32(type, row,
                   tensor.data.bytes().subspan(static_cast<size_t>(r) * row_bytes, row_bytes));
  }
}

void FillAnswer(const EncoderSpec& spec, const BatchItem& item, float error) {
  const Plan& plan = *item.plan;
  Answer& answer = *item.answer;
  const Sequence& sequence = item.request->sequences[item.sequence];
  const size_t place = plan.PlaceOf(item.sequence);
  const int64_t begin = plan.token_offsets[place];
  const int64_t end = plan.token_offsets[place + 1];
  const auto id = [&](int64_t row) {
    return sequence.input_ids.empty() ? 1 : sequence.input_ids[static_cast<size_t>(row)];
  };
  const auto state = [&](int64_t row, int64_t column) {
    return FakeEngine::Value(id(row), row, column) + (column % 2 == 1 ? error : 0);
  };

  if (plan.last_hidden_state) {
    Fill(answer.last_hidden_state, plan.dtype, begin, end, spec.hidden_size, state);
  }
  for (size_t i = 0; i < plan.hidden_layers.size(); ++i) {
    const auto layer = static_cast<float>(plan.hidden_layers[i]);
    Fill(answer.hidden_states[i], plan.dtype, begin, end, spec.hidden_width(plan.hidden_layers[i]),
         [&](int64_t row, int64_t column) { return state(row, column) + layer * 1000; });
  }
  for (size_t i = 0; i < plan.attention_layers.size(); ++i) {
    const AttentionMap& map = answer.attentions[place * plan.attention_layers.size() + i];
    const int64_t rows = map.tensor.shape[1];
    Fill(map.tensor, plan.dtype, 0, map.tensor.shape[0] * rows, map.tensor.shape[2],
         [&](int64_t row, int64_t column) {
           const auto head = plan.attention_heads[static_cast<size_t>(row / rows)];
           const auto query = plan.query_rows.empty()
                                  ? row % rows
                                  : plan.query_rows[static_cast<size_t>(row % rows)];
           return FakeEngine::Value(id(query), query, column) +
                  static_cast<float>(1000 * map.layer + 10000 * head);
         });
  }
  for (size_t i = 0; i < plan.pooled.size(); ++i) {
    Fill(answer.pooled[i], plan.dtype, plan.pooled_offsets[place], plan.pooled_offsets[place + 1],
         plan.pooled[i].dimensions,
         [&](int64_t row, int64_t column) { return state(0, column) + static_cast<float>(row); });
  }
  if (plan.contacts) {
    const AnswerTensor& contacts = answer.contacts[place];
    Fill(contacts, plan.dtype, 0, contacts.shape[0], contacts.shape[1], state);
  }
}

}  // namespace

class FakeWorker : public Worker {
 public:
  explicit FakeWorker(const FakeEngine& engine) : engine_(engine) {}

  absl::Status Run(std::span<BatchItem> items, absl::FunctionRef<bool()> abandoned) override {
    CheckSize(items);
    engine_.latch_.Pass();
    if (abandoned()) return absl::CancelledError("the batch was abandoned");
    for (const BatchItem& item : items) {
      if (FirstId(item) == FakeEngine::kFailsBatch) return absl::InternalError("a kernel failed");
    }
    KeepBusy(items);
    for (BatchItem& item : items) {
      ++engine_.sequences_run_;
      CHECK(KeepHidden(item)) << "a part that does not start where the one before it ended";
      if (engine_.broken_ || FirstId(item) == FakeEngine::kNonFinite) {
        item.status = absl::InternalError("last_hidden_state has a NaN");
      } else {
        FillAnswer(engine_.spec(), item, engine_.error_);
      }
    }
    return absl::OkStatus();
  }

 private:
  // The hidden rows of a part say how many blocks have run.
  static bool KeepHidden(const BatchItem& item) {
    const Plan& plan = *item.plan;
    if (plan.first_block > 0 && item.hidden[0] != static_cast<float>(plan.first_block)) {
      return false;
    }
    if (plan.keeps_hidden) item.hidden[0] = static_cast<float>(plan.layers_run);
    return true;
  }

  // What Worker::Run requires.
  void CheckSize(std::span<const BatchItem> items) const {
    int64_t tokens = 0;
    for (const BatchItem& item : items) {
      tokens += item.request->sequences[item.sequence].tokens();
    }
    CHECK(items.size() == 1 || tokens <= engine_.info_.max_batch_tokens) << tokens;
  }

  void KeepBusy(std::span<const BatchItem> items) const {
    absl::Duration busy;
    for (const BatchItem& item : items) {
      busy += engine_.work_ * item.request->sequences[item.sequence].tokens();
    }
    const absl::Duration end = ThreadTime() + busy;
    while (ThreadTime() < end) {
    }
  }

  static absl::Duration ThreadTime() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return absl::DurationFromTimespec(time);
  }

  static int32_t FirstId(const BatchItem& item) {
    const auto ids = item.request->sequences[item.sequence].input_ids;
    return ids.empty() ? -1 : ids[0];
  }

  const FakeEngine& engine_;
};

FakeEngine::FakeEngine() {
  spec_.family = "fake";
  spec_.vocab_size = 100;
  spec_.type_vocab_size = 2;
  spec_.positions = PositionKind::kLearned;
  spec_.max_positions = 512;
  spec_.num_layers = 2;
  spec_.hidden_size = 8;
  spec_.num_heads = 2;
  spec_.ffn_size = 32;
  info_ = {.isa = "none",
           .precision = "fp32",
           .numerics_id = "fake-numerics",
           .weights_sha256 = "fake-weights",
           .tokenizer_sha256 = "fake-tokenizer",
           .tensors_used = {"embedding.weight"},
           .tensors_unused = {"spare.weight"},
           .parameters = 800,
           .weights_bytes = 3200,
           .scratch_bytes_per_worker = 4096,
           .max_batch_tokens = 512,
           .max_sequence_tokens = 512};
}

absl::StatusOr<Answer> FakeEngine::AllocateAnswer(const Plan& plan) const {
  allocation_latch_.Pass();
  if (memory_ == Memory::kThrows) throw std::bad_alloc();
  if (memory_ == Memory::kExhausted) return absl::ResourceExhaustedError("no memory for it");
  return AllocateTensors(spec_, plan);
}

absl::StatusOr<std::unique_ptr<Worker>> FakeEngine::CreateWorker() const {
  return std::make_unique<FakeWorker>(*this);
}

}  // namespace encoderd
