// This engine beside its peers.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/bench/measurements.h"

namespace encoderd::bench {
namespace {

constexpr int kRounds = 5;
constexpr const char* kWorksWithFloors[] = {"fixed:128", "squad"};

// What all entrants did in one round.
struct Result {
  Entrant* entrant;
  absl::StatusOr<double> rate;
};

const Result& Find(const std::vector<Result>& results, bool own, Precision precision) {
  const auto found = std::ranges::find_if(results, [&](const Result& result) {
    return result.entrant->own() == own && result.entrant->precision == precision;
  });
  return *found;
}

// The fastest peer of those that `fits` and count; null where there is none.
template <typename F>
const Result* BestPeer(const std::vector<Result>& results, F&& fits) {
  const Result* best = nullptr;
  for (const Result& result : results) {
    const Entrant& entrant = *result.entrant;
    if (entrant.own() || !result.rate.ok() || !entrant.Counts() || !fits(entrant)) continue;
    if (best == nullptr || *result.rate > *best->rate) best = &result;
  }
  return best;
}

Found BesideBest(const absl::StatusOr<double>& own, const Result* peer, const std::string& none) {
  if (peer == nullptr) return {std::nullopt, none};
  Found found = RatioOf(own, peer->rate, "tokens/s");
  if (found.ratio.has_value()) absl::StrAppend(&found.detail, "; ", peer->entrant->name());
  return found;
}

// This engine ÷ the fastest peer that is as exact as the precision asks: of the same precision, or,
// where all of those compute too roughly, of any other.
Found BesideBestOf(const std::vector<Result>& results, Precision precision) {
  const absl::StatusOr<double>& own = Find(results, /*own=*/true, precision).rate;
  const Result* peer =
      BestPeer(results, [&](const Entrant& entrant) { return entrant.precision == precision; });
  if (peer == nullptr) peer = BestPeer(results, [](const Entrant&) { return true; });
  return BesideBest(own, peer, "no peer runs it within the error bound");
}

// Those who take part in a work. Passes through large models take long: where peers have been compared
// in the two works whose ratios have floors, only the fastest of those are compared in the others.
std::vector<Entrant*> Starters(Field& field, const Cells& cells, bool has_floor) {
  std::vector<Entrant*> all = field.All();
  const auto fastest = [&](const std::string& work, Precision precision) {
    const Cell* best = nullptr;
    for (const Cell& cell : cells) {
      if (cell.model != field.model().name || cell.work != work || cell.engine == kOwn) continue;
      if (cell.precision != precision || cell.rates.empty()) continue;
      if (best == nullptr || report::Median(cell.rates) > report::Median(best->rates)) best = &cell;
    }
    return best == nullptr ? "" : best->engine;
  };
  if (has_floor || !field.model().large() || fastest(kWorksWithFloors[0], Precision::kFp32).empty())
    return all;
  std::erase_if(all, [&](const Entrant* entrant) {
    return !entrant->own() && std::ranges::none_of(kWorksWithFloors, [&](const char* work) {
      return fastest(work, entrant->precision) == entrant->engine;
    });
  });
  return all;
}

// All of them in turns, by precision. The speed of a shared machine drifts, so this engine runs before
// its peers and again after them, and the mean counts.
std::vector<Result> OneRound(Field& field, const std::vector<Entrant*>& entrants,
                             const std::string& work, double seconds) {
  std::vector<Result> results;
  for (const Precision precision : kPrecisions) {
    const size_t first = results.size();
    for (Entrant* const entrant : entrants) {
      if (entrant->precision != precision) continue;
      results.push_back({entrant, field.Rate(*entrant, work, seconds)});
    }
    Result& own = results[first];
    const auto again = field.Rate(*own.entrant, work, seconds);
    if (own.rate.ok() && again.ok()) own.rate = (*own.rate + *again) / 2;
  }
  return results;
}

std::string SettingText(const Setting& setting) {
  return absl::StrCat(setting.way, ", ", setting.batching);
}

// Adds a round to the cells of a work.
void Record(Cells& cells, const Field& field, const std::string& work,
            const std::vector<Result>& results) {
  for (const Result& result : results) {
    const Entrant& entrant = *result.entrant;
    auto cell = std::ranges::find_if(cells, [&](const Cell& each) {
      return each.model == field.model().name && each.work == work &&
             each.engine == entrant.engine && each.precision == entrant.precision;
    });
    if (cell == cells.end()) {
      cells.push_back({.model = field.model().name,
                       .work = work,
                       .engine = entrant.engine,
                       .version = entrant.version,
                       .precision = entrant.precision,
                       .accuracy = entrant.accuracy,
                       .counts = entrant.Counts(),
                       .kernels = entrant.kernels});
      cell = std::prev(cells.end());
    }
    if (result.rate.ok()) {
      cell->rates.push_back(*result.rate);
      cell->setting = SettingText(entrant.settings.at(work));
    } else {
      cell->why_not = std::string(result.rate.status().message());
    }
  }
}

Measurement OneWork(const FieldRef& field, const std::string& work, Cells& cells) {
  const bool mix = work == kWorksWithFloors[1];
  const bool has_floor = mix || work == kWorksWithFloors[0];
  const std::string name = absl::StrCat(field->model().name, ", ", work, ": ");
  std::vector<Figure> figures = {{.name = name + "fp32 ÷ best fp32 peer"},
                                 {.name = name + "bf16 ÷ best bf16 peer"},
                                 {.name = name + "int8 ÷ best int8 peer"}};
  if (work == kWorksWithFloors[0]) figures[0].floor = 1.05, figures[0].aim = 1.4;
  if (mix) {
    figures[0].floor = 1.2, figures[0].aim = 1.6;
    figures[1].floor = 1.2, figures[1].aim = 1.5;
    figures[2].floor = 1.2, figures[2].aim = 2.0;
    figures.push_back({name + "fp32 ÷ best fp32 peer in padded groups of 16", 2.5, 4.0});
  }
  const auto round = [field, work, mix, has_floor, &cells](const Settings& settings) {
    if (settings.quick && !has_floor) return std::vector<Found>(3, {{}, "left out by --quick"});
    if (settings.quick) field->TryFewSettings();
    const std::vector<Result> results =
        OneRound(*field, Starters(*field, cells, has_floor), work, settings.seconds);
    Record(cells, *field, work, results);
    std::vector<Found> found;
    for (const Precision precision : kPrecisions) found.push_back(BesideBestOf(results, precision));
    if (mix) {
      const Result* const best = BestPeer(
          results, [](const Entrant& entrant) { return entrant.precision == Precision::kFp32; });
      std::optional<Result> grouped;
      if (best != nullptr) {
        Entrant& peer = *best->entrant;
        grouped = {&peer, field->RateInGroups(peer, work, settings.seconds)};
      }
      found.push_back(BesideBest(Find(results, /*own=*/true, Precision::kFp32).rate,
                                 grouped.has_value() ? &*grouped : nullptr, "no fp32 peer runs"));
    }
    return found;
  };
  return {.key = absl::StrCat(field->model().key, ".", work),
          .figures = std::move(figures),
          .round = round,
          .rounds = kRounds};
}

}  // namespace

std::vector<Measurement> PeerMeasurements(const FieldRef& field, Cells& cells) {
  std::vector<Measurement> measurements;
  for (const char* const work :
       {"fixed:128", "squad", "fixed:16", "fixed:384", "short", "uniform:1-512", "bimodal"}) {
    measurements.push_back(OneWork(field, work, cells));
  }
  return measurements;
}

}  // namespace encoderd::bench
