#include "server/precision_choice.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/status_macros.h"
#include "engine/accuracy.h"
#include "server/log.h"
#include "server/sample_batch.h"

namespace encoderd {
namespace {

constexpr int64_t kSequenceTokens = 128;
// Of each of two precisions; the fastest counts, and the first also pays for memory.
constexpr int kRounds = 6;
// A batch of fp32 is to take so long at most, by running fewer blocks.
constexpr absl::Duration kBatchTime = absl::Milliseconds(50);

SampleBatch::Shape ShapeOf(const EngineInfo& info, int64_t blocks) {
  const int64_t tokens =
      std::min({kSequenceTokens, info.max_sequence_tokens, info.max_batch_tokens});
  return {.sequences = info.max_batch_tokens / tokens, .tokens = tokens, .blocks = blocks};
}

// An engine under trial. Its members go in the right order only with the whole.
class Contestant {
 public:
  static absl::StatusOr<std::unique_ptr<Contestant>> Create(std::unique_ptr<Engine> engine) {
    auto contestant = std::make_unique<Contestant>();
    contestant->engine_ = std::move(engine);
    ASSIGN_OR_RETURN(contestant->worker_, contestant->engine_->CreateWorker());
    return contestant;
  }

  const Engine& engine() const { return *engine_; }

  absl::StatusOr<AnswerTensor> Run(const Sequence& sequence) {
    return LastHiddenState(engine_->spec(), *worker_, sequence);
  }

  // The time of a batch through the first so many blocks.
  absl::StatusOr<absl::Duration> Time(int64_t blocks) {
    if (batch_ == nullptr || blocks != blocks_) {
      ASSIGN_OR_RETURN(batch_, SampleBatch::Create(*engine_, ShapeOf(engine_->info(), blocks)));
      blocks_ = blocks;
    }
    ASSIGN_OR_RETURN(const absl::Duration time, batch_->Run(*worker_));
    return std::max(time, absl::Nanoseconds(1));
  }

  // What a time of so many blocks is as a rate of the whole model.
  double TokensPerSecond(absl::Duration time) const {
    const SampleBatch::Shape shape = ShapeOf(engine_->info(), blocks_);
    const double part =
        static_cast<double>(blocks_) / static_cast<double>(engine_->spec().num_layers);
    return static_cast<double>(shape.sequences * shape.tokens) * part / absl::ToDoubleSeconds(time);
  }

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<SampleBatch> batch_;
  int64_t blocks_ = 0;
};

class Trials {
 public:
  Trials(double error_max, const PrecisionLoader& load) : load_(load) {
    choice_.error_max = error_max;
  }

  absl::StatusOr<PrecisionChoice> Run() {
    RETURN_IF_ERROR(TryFp32());
    for (const Precision precision : kPrecisions) {
      if (precision == Precision::kFp32) continue;
      PrecisionTrial& trial = choice_.trials.emplace_back();
      trial.precision = precision;
      // What a precision cannot do is no fault of the model's, which fp32 has run.
      const absl::Status status = Try(trial);
      if (!status.ok()) trial.refused = std::string(status.message());
      Log(trial);
    }
    LogChoice();
    return std::move(choice_);
  }

 private:
  absl::Status TryFp32() {
    ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, load_(Precision::kFp32));
    ASSIGN_OR_RETURN(best_, Contestant::Create(std::move(engine)));
    const EngineInfo& info = best_->engine().info();
    choice_.isa = info.isa;
    choice_.weights_sha256 = info.weights_sha256;
    width_ = best_->engine().spec().hidden_size;

    fixed_.emplace(best_->engine().spec(),
                   std::min(info.max_sequence_tokens, info.max_batch_tokens));
    for (const Sequence& sequence : fixed_->sequences()) {
      // Of what is not finite in fp32 either, there is nothing to compare.
      absl::StatusOr<AnswerTensor> rows = best_->Run(sequence);
      if (!rows.ok() && !absl::IsInternal(rows.status())) return rows.status();
      expected_.push_back(rows.ok() ? std::optional(*std::move(rows)) : std::nullopt);
    }

    // Twice, because the first run pays for memory.
    RETURN_IF_ERROR(best_->Time(/*blocks=*/1).status());
    ASSIGN_OR_RETURN(const absl::Duration block, best_->Time(/*blocks=*/1));
    const double affordable = std::min(absl::FDivDuration(kBatchTime, block), 1e6);
    blocks_ =
        std::clamp(static_cast<int64_t>(affordable), int64_t{1}, best_->engine().spec().num_layers);
    ASSIGN_OR_RETURN(absl::Duration time, best_->Time(blocks_));
    for (int round = 1; round < kRounds; ++round) {
      ASSIGN_OR_RETURN(const absl::Duration again, best_->Time(blocks_));
      time = std::min(time, again);
    }
    choice_.trials = {{.tokens_per_second = best_->TokensPerSecond(time)}};
    Log(choice_.trials[0]);
    return absl::OkStatus();
  }

  absl::Status Try(PrecisionTrial& trial) {
    ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, load_(trial.precision));
    ASSIGN_OR_RETURN(std::unique_ptr<Contestant> challenger, Contestant::Create(std::move(engine)));
    ASSIGN_OR_RETURN(trial.error, ErrorOf(*challenger));

    absl::Duration own = absl::InfiniteDuration(), best = absl::InfiniteDuration();
    for (int round = 0; round < kRounds; ++round) {
      ASSIGN_OR_RETURN(const absl::Duration best_time, best_->Time(blocks_));
      ASSIGN_OR_RETURN(const absl::Duration own_time, challenger->Time(blocks_));
      best = std::min(best, best_time);
      own = std::min(own, own_time);
    }
    trial.tokens_per_second = challenger->TokensPerSecond(own);
    if (trial.error > choice_.error_max || own * kFasterBy > best) return absl::OkStatus();
    choice_.precision = trial.precision;
    best_ = std::move(challenger);
    return absl::OkStatus();
  }

  absl::StatusOr<double> ErrorOf(Contestant& challenger) const {
    double largest = 0;
    for (size_t i = 0; i < expected_.size(); ++i) {
      if (!expected_[i].has_value()) continue;
      ASSIGN_OR_RETURN(const AnswerTensor got, challenger.Run(fixed_->sequences()[i]));
      largest =
          std::max(largest, LargestError(expected_[i]->data.floats(), got.data.floats(), width_));
    }
    return largest;
  }

  void Log(const PrecisionTrial& trial) const {
    const std::string name(PrecisionName(trial.precision));
    if (!trial.refused.empty()) {
      LOG(INFO) << "A precision is no candidate. precision=" << name
                << " reason=" << LogValue(trial.refused);
      return;
    }
    LOG(INFO) << "Measured a precision. precision=" << name << " error=" << trial.error
              << " tokens_per_second=" << static_cast<int64_t>(trial.tokens_per_second);
  }

  void LogChoice() const {
    const auto measured = [](const PrecisionTrial& trial) { return trial.refused.empty(); };
    const auto beyond = [&](const PrecisionTrial& trial) {
      return measured(trial) && trial.error > choice_.error_max;
    };
    const auto others = std::ranges::count_if(choice_.trials, measured) - 1;
    if (others > 0 && std::ranges::count_if(choice_.trials, beyond) == others) {
      std::string errors;
      for (const PrecisionTrial& trial : choice_.trials) {
        if (!beyond(trial)) continue;
        absl::StrAppend(&errors, " ", std::string(PrecisionName(trial.precision)),
                        "_error=", trial.error);
      }
      LOG(WARNING) << "No precision but fp32 is within --precision_error_max: fp32 is served."
                   << " precision_error_max=" << choice_.error_max << errors;
      return;
    }
    LOG(INFO) << "Chose the precision. precision=" << std::string(PrecisionName(choice_.precision))
              << " precision_error_max=" << choice_.error_max;
  }

  const PrecisionLoader& load_;
  PrecisionChoice choice_;
  std::unique_ptr<Contestant> best_;  // the fastest within the bound so far
  std::optional<FixedSequences> fixed_;
  std::vector<std::optional<AnswerTensor>> expected_;  // of fp32; none where it is not finite
  int64_t width_ = 0;
  int64_t blocks_ = 0;  // that are timed
};

}  // namespace

absl::StatusOr<PrecisionChoice> ChoosePrecision(double error_max, const PrecisionLoader& load) {
  return Trials(error_max, load).Run();
}

}  // namespace encoderd
