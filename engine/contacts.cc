#include "engine/contacts.h"

#include <algorithm>
#include <cmath>

#include "engine/answer_writer.h"
#include "engine/outputs.h"
#include "engine/status_macros.h"

namespace encoderd {
namespace {

// The sequences of a pass have max_tokens tokens in all, so their squares fit the square of that.
size_t LogitsBytes(int64_t max_tokens) {
  return static_cast<size_t>(max_tokens * max_tokens) * sizeof(float);
}

size_t SumsBytes(const EncoderSpec& spec, int64_t max_tokens) {
  return static_cast<size_t>(spec.num_heads * max_tokens) * sizeof(float);
}

// Whether contacts are told of a token at all.
bool Counts(const Sequence& sequence, int64_t end_id, size_t token) {
  const bool hidden = !sequence.mask.keys.empty() && sequence.mask.keys[token] == 0;
  const bool end = !sequence.input_ids.empty() && sequence.input_ids[token] == end_id;
  return !hidden && !end;
}

}  // namespace

int64_t Contacts::ScratchBytes(const EncoderSpec& spec, int64_t max_tokens) {
  return static_cast<int64_t>(LogitsBytes(max_tokens) + 2 * SumsBytes(spec, max_tokens)) +
         max_tokens;
}

absl::StatusOr<Contacts> Contacts::Create(const EncoderSpec& spec, const EncoderWeights& weights,
                                          int64_t max_tokens) {
  Contacts contacts(spec, *weights.contact);
  ASSIGN_OR_RETURN(contacts.logits_, Buffer::AllocateLasting(LogitsBytes(max_tokens), "contacts"));
  for (Buffer* sums : {&contacts.rows_, &contacts.columns_}) {
    ASSIGN_OR_RETURN(*sums, Buffer::AllocateLasting(SumsBytes(spec, max_tokens), "sums of maps"));
  }
  ASSIGN_OR_RETURN(contacts.counts_,
                   Buffer::AllocateLasting(static_cast<size_t>(max_tokens), "tokens in contact"));
  contacts.sequences_.reserve(static_cast<size_t>(max_tokens));
  return contacts;
}

void Contacts::Begin(std::span<const PlacedSequence> sequences) {
  sequences_.clear();
  wanted_ = false;
  Sums next = {.logits = logits_.floats().data(),
               .rows = rows_.floats().data(),
               .columns = columns_.floats().data(),
               .counts = reinterpret_cast<uint8_t*>(counts_.data())};
  for (const PlacedSequence& sequence : sequences) {
    Sums& sums = sequences_.emplace_back();
    if (!sequence.item->plan->contacts) continue;
    sums = next;
    sums.item = sequence.item;
    sums.inner = ContactTokens(sequence.tokens);
    wanted_ = wanted_ || sums.inner > 0;
    next.logits += sums.inner * sums.inner;
    next.rows += spec_->num_heads * sums.inner;
    next.columns += spec_->num_heads * sums.inner;
    next.counts += sums.inner;

    const Sequence& input = sequence.item->request->sequences[sequence.item->sequence];
    for (int64_t i = 0; i < sums.inner; ++i) {
      sums.counts[i] = Counts(input, spec_->contact_end_id, static_cast<size_t>(i + 1));
    }
    std::fill_n(sums.logits, sums.inner * sums.inner, 0.0f);
    Clear(sums);
  }
}

void Contacts::Clear(const Sums& sums) const {
  for (float* const values : {sums.rows, sums.columns}) {
    std::fill_n(values, spec_->num_heads * sums.inner, 0.0f);
  }
}

void Contacts::AddRow(int64_t layer, const MapRow& row) {
  const Sums& sums = sequences_[row.sequence];
  const int64_t i = row.token - 1;
  if (i < 0 || i >= sums.inner || sums.counts[i] == 0) return;
  const float weight = WeightOf(layer, row.head);
  const float* const map = row.weights.data() + 1;
  float* const logits = sums.logits + i * sums.inner;
  float* const columns = sums.columns + row.head * sums.inner;
  float sum = 0;
  for (int64_t j = 0; j < sums.inner; ++j) {
    const float value = static_cast<float>(sums.counts[j]) * map[j];
    logits[j] += weight * value;
    columns[j] += value;
    sum += value;
  }
  sums.rows[row.head * sums.inner + i] = sum;
}

void Contacts::EndBlock(int64_t layer) {
  for (const Sums& sums : sequences_) {
    for (int64_t head = 0; head < spec_->num_heads; ++head) Correct(sums, layer, head);
    Clear(sums);
  }
}

// Takes away half of weight · a·aᵀ / t: the other half comes with the transpose.
void Contacts::Correct(const Sums& sums, int64_t layer, int64_t head) const {
  const int64_t inner = sums.inner;
  float* const a = sums.rows + head * inner;
  const float* const columns = sums.columns + head * inner;
  float total = 0;
  for (int64_t i = 0; i < inner; ++i) {
    a[i] += columns[i];
    total += a[i];
  }
  if (total == 0) return;
  const float half = 0.5f * WeightOf(layer, head);
  for (int64_t i = 0; i < inner; ++i) {
    const float factor = half * (a[i] / total);
    float* const logits = sums.logits + i * inner;
    for (int64_t j = 0; j < inner; ++j) logits[j] -= factor * a[j];
  }
}

void Contacts::Write() {
  for (const Sums& sums : sequences_) WriteSequence(sums);
}

void Contacts::WriteSequence(const Sums& sums) const {
  if (sums.inner == 0) return;
  const Plan& plan = *sums.item->plan;
  AnswerTensor& tensor = sums.item->answer->contacts[plan.PlaceOf(sums.item->sequence)];
  // The sums of the last block are of no use any more.
  const std::span<float> row(sums.rows, static_cast<size_t>(sums.inner));
  for (int64_t i = 0; i < sums.inner; ++i) {
    bool finite = true;
    for (int64_t j = 0; j < sums.inner; ++j) {
      const float logit =
          sums.logits[i * sums.inner + j] + sums.logits[j * sums.inner + i] + weights_->bias;
      // The sigmoid makes a probability of an infinity, too.
      finite = finite && std::isfinite(logit);
      row[static_cast<size_t>(j)] =
          static_cast<float>(1 / (1 + std::exp(-static_cast<double>(logit))));
    }
    if (!WriteRows(row, i, plan.dtype, tensor) || !finite) {
      AnswerWriter::Fail(*sums.item, "contacts");
    }
  }
}

}  // namespace encoderd
