// field.h — all contenders on one model: this engine and its peers, each in every precision.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/precision.h"
#include "tests/bench/contender.h"
#include "tests/bench/models.h"
#include "tests/bench/work.h"

namespace encoderd::bench {

inline constexpr char kOwn[] = "encoderd";

// How near last hidden states are to this engine's in fp32: cosines of the tokens, by the rule of
// accuracy.h.
struct Accuracy {
  double least = 0;
  double mean = 0;
};
// REQUIRES: equal numbers of rows of `width` values.
Accuracy CompareRows(std::span<const float> got, std::span<const float> expected, int64_t width);

// The least cosine of a token with which a contender computes the same as the others.
double LeastCosine(Precision precision);

// An engine at a precision on the field's model.
struct Entrant {
  std::string engine;
  Precision precision;
  std::unique_ptr<Contender> contender = nullptr;  // null where it cannot
  std::string why_not = {};
  std::string version = {};
  std::string kernels = {};
  Accuracy accuracy = {};
  std::map<std::string, Setting> settings = {};   // by work: the best one
  std::map<std::string, Setting> in_groups = {};  // the best one with padded groups of 16

  bool own() const { return engine == kOwn; }
  std::string name() const;
  // Runs, and near enough to be compared.
  bool Counts() const { return contender != nullptr && accuracy.least >= LeastCosine(precision); }
};

class Field {
 public:
  Field(Model model, int threads);

  const Model& model() const { return model_; }
  int threads() const { return threads_; }

  // This engine; started when it is first asked for.
  Entrant& Own(Precision precision) { return Started(Find(kOwn, precision)); }
  // All of them, started and checked. They take some gigabytes of memory until the field is gone.
  std::vector<Entrant*> All();

  // From now on, best settings are looked for among those that are best most often.
  void TryFewSettings() { few_settings_ = true; }

  // A few thousand tokens.
  const Work& WorkOf(const std::string& lengths);

  // Tokens per second in the entrant's best setting, which is found when first asked for a work.
  // Errors: why it cannot, or could not any more.
  absl::StatusOr<double> Rate(Entrant& entrant, const std::string& lengths, double seconds);
  // The same of a peer that is given 16 sequences at a time as they come, padded to the longest, as a
  // server without more wit does.
  absl::StatusOr<double> RateInGroups(Entrant& entrant, const std::string& lengths, double seconds);
  // In a given setting. The entrant must know the work.
  absl::StatusOr<double> Rate(Entrant& entrant, const std::string& lengths, const Setting& setting,
                              double seconds);

 private:
  Entrant& Find(const std::string& engine, Precision precision);
  Entrant& Started(Entrant& entrant);
  std::vector<std::string> Command(const Entrant& entrant) const;
  void Check(Entrant& entrant);
  // What a setting brought when it was tried, in tokens per second.
  struct Trial {
    Setting setting = {};
    double rate = 0;
  };
  // The best of these. Errors: where none works, that of the last one.
  absl::StatusOr<Trial> Try(Entrant& entrant, const std::string& lengths,
                            const std::vector<std::string>& ways,
                            const std::vector<std::string>& batchings);
  absl::Status FindBest(Entrant& entrant, const std::string& lengths);

  const Model model_;
  const int threads_;
  const std::vector<int32_t> text_;
  std::vector<Entrant> entrants_;
  std::map<std::string, Work> works_;
  bool few_settings_ = false;
  std::vector<float> expected_;  // of CheckSequences
};

}  // namespace encoderd::bench
