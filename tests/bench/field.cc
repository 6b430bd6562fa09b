#include "tests/bench/field.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/log/check.h"
#include "absl/strings/str_cat.h"
#include "deploy/client/load/lengths.h"
#include "engine/accuracy.h"
#include "engine/status_macros.h"

namespace encoderd::bench {
namespace {

namespace fs = std::filesystem;

struct PeerProgram {
  const char* engine;
  const char* file;  // in peers/
};
constexpr PeerProgram kPeers[] = {{"ONNX Runtime", "onnxruntime_peer.py"},
                                  {"OpenVINO", "openvino_peer.py"},
                                  {"CTranslate2", "ctranslate2_peer.py"},
                                  {"PyTorch", "pytorch_peer.py"}};

constexpr double kTrySeconds = 0.15;

constexpr int64_t kMaxPeerTokens = 512;  // of a sequence that peers get too

// Tokens of a pass through a work.
constexpr double kPassTokens[] = {4096, 2048};  // small and large models

// How many sequences make a pass of about so many tokens.
int SequencesOf(const client::LengthDistribution& mix, double tokens, int threads) {
  if (mix.max() > kMaxPeerTokens) return threads;
  const bool equal = mix.mean() == static_cast<double>(mix.max());
  const int least = equal ? 8 : 16;  // two batches, or a group
  return std::clamp(static_cast<int>(tokens / mix.mean()), least, 64);
}

void Tell(const std::string& what) { std::fprintf(stderr, "\r%s\033[K", what.c_str()); }

}  // namespace

Accuracy CompareRows(std::span<const float> got, std::span<const float> expected, int64_t width) {
  CHECK_EQ(got.size(), expected.size());
  const double rows = static_cast<double>(got.size()) / static_cast<double>(width);
  return {.least = 1 - LargestError(expected, got, width),
          .mean = 1 - SumOfErrors(expected, got, width) / rows};
}

double LeastCosine(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return 0.99999;
    case Precision::kBf16:
      return 0.999;
    case Precision::kInt8:
      return 0.99;
  }
  return 1;
}

std::string Entrant::name() const {
  return absl::StrCat(engine, " ", std::string(PrecisionName(precision)));
}

Field::Field(Model model, int threads)
    : model_(std::move(model)), threads_(threads), text_(ReadTextIds()) {
  for (const Precision precision : kPrecisions) {
    entrants_.push_back({.engine = kOwn, .precision = precision});
    for (const PeerProgram& peer : kPeers) {
      entrants_.push_back({.engine = peer.engine, .precision = precision});
    }
  }
}

std::vector<Entrant*> Field::All() {
  std::vector<Entrant*> all;
  for (Entrant& entrant : entrants_) all.push_back(&Started(entrant));
  return all;
}

const Work& Field::WorkOf(const std::string& lengths) {
  const auto found = works_.find(lengths);
  if (found != works_.end()) return found->second;
  const auto mix = client::LengthDistribution::Parse(lengths);
  CHECK(mix.ok()) << mix.status();
  const double tokens = kPassTokens[model_.large() ? 1 : 0];
  return works_[lengths] = MakeWork(text_, lengths, SequencesOf(*mix, tokens, threads_));
}

absl::StatusOr<double> Field::Rate(Entrant& entrant, const std::string& lengths, double seconds) {
  Started(entrant);
  if (entrant.contender == nullptr) return absl::UnavailableError(entrant.why_not);
  if (!entrant.settings.contains(lengths)) {
    RETURN_IF_ERROR(entrant.contender->Learn(WorkOf(lengths)));
    RETURN_IF_ERROR(FindBest(entrant, lengths));
  }
  return Rate(entrant, lengths, entrant.settings[lengths], seconds);
}

absl::StatusOr<double> Field::RateInGroups(Entrant& entrant, const std::string& lengths,
                                           double seconds) {
  if (!entrant.in_groups.contains(lengths)) {
    ASSIGN_OR_RETURN(const Trial best,
                     Try(entrant, lengths, entrant.contender->ways(), {"groups:16"}));
    entrant.in_groups[lengths] = best.setting;
  }
  return Rate(entrant, lengths, entrant.in_groups[lengths], seconds);
}

absl::StatusOr<double> Field::Rate(Entrant& entrant, const std::string& lengths,
                                   const Setting& setting, double seconds) {
  if (entrant.contender == nullptr) return absl::UnavailableError(entrant.why_not);
  return entrant.contender->Time(lengths, setting, seconds);
}

Entrant& Field::Find(const std::string& engine, Precision precision) {
  const auto found = std::ranges::find_if(entrants_, [&](const Entrant& entrant) {
    return entrant.engine == engine && entrant.precision == precision;
  });
  CHECK(found != entrants_.end());
  return *found;
}

Entrant& Field::Started(Entrant& entrant) {
  if (entrant.contender != nullptr || !entrant.why_not.empty()) return entrant;
  WriteModel(model_);
  Tell(absl::StrCat(model_.name, ": starting ", entrant.name()));
  const fs::path logs = fs::path(BenchFolder()) / "logs";
  fs::create_directories(logs);
  auto started =
      Contender::Start(Command(entrant), logs / absl::StrCat(model_.key, " ", entrant.name()));
  if (!started.ok()) {
    entrant.why_not = std::string(started.status().message());
    return entrant;
  }
  entrant.contender = *std::move(started);
  entrant.version = entrant.contender->version();
  Check(entrant);
  return entrant;
}

std::vector<std::string> Field::Command(const Entrant& entrant) const {
  const std::string precision(PrecisionName(entrant.precision));
  if (entrant.own()) {
    return {ENCODERD_ENGINE_CONTENDER, absl::StrCat("--model=", model_.dir),
            absl::StrCat("--precision=", precision), absl::StrCat("--threads=", threads_)};
  }
  const auto* const peer = std::ranges::find(kPeers, entrant.engine, &PeerProgram::engine);
  return {BenchFolder() + "/venv/bin/python",
          absl::StrCat(ENCODERD_SOURCE_DIR "/tests/bench/peers/", peer->file),
          absl::StrCat("--model=", model_.dir),
          absl::StrCat("--cache=", BenchFolder(), "/converted/", model_.key,
                       model_.trained ? "-trained" : ""),
          absl::StrCat("--precision=", precision),
          absl::StrCat("--threads=", threads_)};
}

// Compares what it computes with this engine in fp32.
void Field::Check(Entrant& entrant) {
  const bool reference = entrant.own() && entrant.precision == Precision::kFp32;
  if (!reference && expected_.empty()) Own(Precision::kFp32);
  auto got = entrant.contender->Encode(CheckSequences(text_));
  if (got.ok() && reference) expected_ = *got;
  if (!got.ok() || got->size() != expected_.size()) {
    entrant.why_not =
        got.ok() ? "its last hidden states have another size" : std::string(got.status().message());
    entrant.contender = nullptr;
    return;
  }
  entrant.accuracy = CompareRows(*got, expected_, model_.shape.hidden);
  const auto kernels = entrant.contender->Kernels();
  entrant.kernels = kernels.ok() ? *kernels : std::string(kernels.status().message());
}

absl::Status Field::FindBest(Entrant& entrant, const std::string& lengths) {
  if (entrant.own()) {
    entrant.settings[lengths] = {.way = "apart", .batching = "packed:512"};
    return absl::OkStatus();
  }
  Tell(absl::StrCat(model_.name, ", ", lengths, ": best setting of ", entrant.name()));
  ASSIGN_OR_RETURN(const Trial sorted,
                   Try(entrant, lengths, entrant.contender->ways(), {"sorted:512"}));
  entrant.settings[lengths] = sorted.setting;
  if (few_settings_) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Trial other,
                   Try(entrant, lengths, {sorted.setting.way}, {"groups:1", "sorted:2048"}));
  if (other.rate > sorted.rate) entrant.settings[lengths] = other.setting;
  return absl::OkStatus();
}

absl::StatusOr<Field::Trial> Field::Try(Entrant& entrant, const std::string& lengths,
                                        const std::vector<std::string>& ways,
                                        const std::vector<std::string>& batchings) {
  Trial best;
  absl::Status failed = absl::UnavailableError("it has no setting");
  for (const std::string& way : ways) {
    for (const std::string& batching : batchings) {
      const Setting setting = {way, batching};
      const auto rate = Rate(entrant, lengths, setting, kTrySeconds);
      if (!rate.ok()) failed = rate.status();
      if (rate.ok() && *rate > best.rate) best = {setting, *rate};
    }
  }
  if (best.rate == 0) return failed;
  return best;
}

}  // namespace encoderd::bench
