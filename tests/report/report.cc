#include "tests/report/report.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/log/check.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace encoderd::report {
namespace {

constexpr size_t kNameWidth = 72;

// Filled up with blanks to so many characters of UTF-8.
std::string Pad(const std::string& text, size_t width) {
  const auto characters = static_cast<size_t>(
      std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; }));
  return text + std::string(characters < width ? width - characters : 0, ' ');
}

std::string Number(std::optional<double> value) {
  return value.has_value() ? absl::StrFormat("%5.2f", *value) : "    –";
}

std::vector<std::vector<Found>> RunRounds(const Measurement& measurement,
                                          const Arguments& arguments, absl::Time start) {
  std::vector<std::vector<Found>> rounds;
  const int count = arguments.settings.quick ? 1 : measurement.rounds;
  for (int round = 0; round < count; ++round) {
    std::fprintf(stderr, "\r%s: round %d of %d, %.0f s since the start\033[K",
                 measurement.key.c_str(), round + 1, count,
                 absl::ToDoubleSeconds(absl::Now() - start));
    rounds.push_back(measurement.round(arguments.settings));
  }
  std::fprintf(stderr, "\r\033[K");
  return rounds;
}

std::vector<Row> Measure(const Measurement& measurement, const Arguments& arguments,
                         absl::Time start) {
  const std::string reason = measurement.why_skipped ? measurement.why_skipped() : "";
  if (reason.empty()) return RowsOf(measurement, RunRounds(measurement, arguments, start));
  return RowsOf(measurement, {std::vector<Found>(measurement.figures.size(), {{}, reason})});
}

}  // namespace

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::string Detail(double numerator, double denominator, const std::string& unit) {
  return absl::StrFormat("%.4g / %.4g %s", numerator, denominator, unit);
}

bool ParseArguments(const std::vector<std::string>& words,
                    const std::vector<Measurement>& measurements, const Settings& quick,
                    Arguments& arguments) {
  for (const std::string& word : words) {
    if (word == "--quick") {
      arguments.settings = quick;
    } else if (absl::StartsWith(word, "--only=")) {
      arguments.only = absl::StrSplit(word.substr(7), ',');
    } else {
      return false;
    }
  }
  return std::ranges::all_of(arguments.only, [&](const std::string& key) {
    return std::ranges::find(measurements, key, &Measurement::key) != measurements.end();
  });
}

void PrintUsage(const std::string& program, const std::vector<Measurement>& measurements) {
  std::printf("usage: %s [--quick] [--only=KEY[,KEY]...]\nkeys:\n", program.c_str());
  for (const Measurement& measurement : measurements) {
    std::printf("  %-20s %s\n", measurement.key.c_str(), measurement.figures.front().name.c_str());
  }
}

std::vector<Row> RowsOf(const Measurement& measurement,
                        const std::vector<std::vector<Found>>& rounds) {
  std::vector<Row> rows;
  for (size_t i = 0; i < measurement.figures.size(); ++i) {
    Row row = {.key = measurement.key, .figure = measurement.figures[i]};
    for (const auto& found : rounds) {
      CHECK_EQ(found.size(), measurement.figures.size()) << measurement.key;
      if (found[i].ratio.has_value()) row.ratios.push_back(*found[i].ratio);
    }
    for (const auto& found : rounds) {
      if (row.ratios.empty() || found[i].ratio == Median(row.ratios)) row.detail = found[i].detail;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string HeaderLine() {
  return absl::StrCat(Pad("ratio of", kNameWidth), "     is  (range)         floor    aim\n");
}

std::string Line(const Row& row) {
  if (row.ratios.empty()) {
    return absl::StrCat(Pad(row.figure.name, kNameWidth), " NOT MEASURED: ", row.detail, "\n");
  }
  const auto [least, most] = std::ranges::minmax_element(row.ratios);
  return absl::StrFormat("%s %6.3f  (%.3f–%.3f)  %s  %s  %-5s  %s\n",
                         Pad(row.figure.name, kNameWidth), Median(row.ratios), *least, *most,
                         Number(row.figure.floor), Number(row.figure.aim),
                         row.Below() ? "BELOW" : "", row.detail);
}

bool Row::Below() const { return !ratios.empty() && !figure.Passes(Median(ratios)); }

int Outcome::Below() const { return static_cast<int>(std::ranges::count_if(rows, &Row::Below)); }

std::string Outcome::Verdict() const {
  const bool measured =
      std::ranges::any_of(rows, [](const Row& row) { return !row.ratios.empty(); });
  if (!measured) return "nothing was measured";
  if (Below() > 0) return absl::StrCat(Below(), " BELOW its floor");
  return "every figure measured reached its floor";
}

Outcome MeasureAll(std::vector<Measurement> measurements, const Arguments& arguments) {
  const absl::Time start = absl::Now();
  Outcome outcome;
  for (Measurement& due : measurements) {
    const Measurement measurement = std::exchange(due, {});
    if (!arguments.only.empty() && !arguments.only.contains(measurement.key)) continue;
    for (Row& row : Measure(measurement, arguments, start)) {
      std::fputs(Line(row).c_str(), stdout);
      outcome.rows.push_back(std::move(row));
    }
    std::fflush(stdout);
  }
  outcome.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  std::printf("%.0f s; %s\n", outcome.seconds, outcome.Verdict().c_str());
  return outcome;
}

nlohmann::json ToJson(const Outcome& outcome) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : outcome.rows) {
    nlohmann::json out = {{"key", row.key},
                          {"figure", row.figure.name},
                          {"rounds", row.ratios},
                          {"detail", row.detail}};
    if (!row.ratios.empty()) {
      const auto [least, most] = std::ranges::minmax_element(row.ratios);
      out["median"] = Median(row.ratios);
      out["least"] = *least;
      out["most"] = *most;
    }
    if (row.figure.floor.has_value()) {
      out["floor"] = *row.figure.floor;
      out["below"] = row.Below();
    }
    if (row.figure.aim.has_value()) out["aim"] = *row.figure.aim;
    rows.push_back(std::move(out));
  }
  return {{"seconds", outcome.seconds}, {"rows", std::move(rows)}};
}

}  // namespace encoderd::report
