// This engine beside the machine's own limits, and beside itself.
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/engine.h"
#include "tests/bench/machine.h"
#include "tests/bench/measurements.h"

namespace encoderd::bench {
namespace {

constexpr int kRounds = 5;
const Setting kPacked = {.way = "apart", .batching = "packed:512"};

absl::StatusOr<double> MachineOperations(Limit limit, Precision precision, int threads,
                                         double seconds) {
  const auto rate = MeasureMachine(limit, precision, threads, seconds);
  if (!rate.ok()) return rate.status();
  return rate->operations;
}

// Operations per second of this engine on sequences of equal length, ÷ the machine's matmul rate.
Found PartOfMatmulRate(Field& field, Precision precision, int64_t tokens, double seconds) {
  const auto machine = MachineOperations(Limit::kMatmul, precision, field.threads(), seconds);
  const auto rate = field.Rate(field.Own(precision), absl::StrCat("fixed:", tokens), seconds);
  if (!rate.ok()) return {std::nullopt, std::string(rate.status().message())};
  if (!machine.ok()) return {std::nullopt, std::string(machine.status().message())};
  const double per_token = Operations(field.model().shape, tokens) / static_cast<double>(tokens);
  return {*rate * per_token / *machine,
          absl::StrFormat("%.0f tokens/s, %.1f sequences/s, %.1f a core; matmul %.0f G op/s", *rate,
                          *rate / static_cast<double>(tokens),
                          *rate / static_cast<double>(tokens) / field.threads(), *machine / 1e9)};
}

Measurement Lengths(const FieldRef& field, const std::vector<int64_t>& lengths) {
  std::vector<std::pair<Precision, int64_t>> cases;
  Measurement measurement = {.key = field->model().key + ".lengths", .rounds = kRounds};
  for (const Precision precision : kPrecisions) {
    for (const int64_t tokens : lengths) {
      cases.emplace_back(precision, tokens);
      measurement.figures.push_back(
          {.name = absl::StrCat(field->model().name, " ", std::string(PrecisionName(precision)),
                                ", ", tokens, " tokens ÷ matmul rate")});
    }
  }
  measurement.round = [field, cases](const Settings& settings) {
    std::vector<Found> found;
    for (const auto& [precision, tokens] : cases) {
      found.push_back(PartOfMatmulRate(*field, precision, tokens, settings.seconds));
    }
    return found;
  };
  return measurement;
}

// This engine in bf16 and in int8 ÷ in fp32, and how near the answers are.
Measurement Precisions(const FieldRef& field, std::vector<Figure> figures) {
  return {.key = field->model().key + ".precisions",
          .figures = std::move(figures),
          .round =
              [field](const Settings& settings) {
                constexpr char kWork[] = "fixed:128";
                const auto fp32 =
                    field->Rate(field->Own(Precision::kFp32), kWork, settings.seconds);
                std::vector<Found> found;
                for (const Precision precision : {Precision::kBf16, Precision::kInt8}) {
                  Entrant& entrant = field->Own(precision);
                  found.push_back(
                      RatioOf(field->Rate(entrant, kWork, settings.seconds), fp32, "tokens/s"));
                  if (!found.back().ratio.has_value()) continue;
                  absl::StrAppendFormat(&found.back().detail, "; least cosine %.5f",
                                        entrant.accuracy.least);
                }
                return found;
              },
          .rounds = kRounds};
}

// Packed ÷ each sequence filled up to 384 tokens, as part of what the tokens alone would give.
Measurement Padding(const FieldRef& field) {
  const auto round = [field](const Settings& settings) -> std::vector<Found> {
    constexpr char kWork[] = "squad";
    constexpr int64_t kFilledTo = 384;
    Entrant& own = field->Own(Precision::kFp32);
    const auto packed = field->Rate(own, kWork, settings.seconds);
    const auto padded =
        field->Rate(own, kWork, {"apart", absl::StrCat("padded:", kFilledTo)}, settings.seconds);
    Found found = RatioOf(packed, padded, "tokens/s");
    const Work& work = field->WorkOf(kWork);
    const double ideal = static_cast<double>(kFilledTo) *
                         static_cast<double>(work.sequences.size()) /
                         static_cast<double>(work.Tokens());
    if (found.ratio.has_value()) {
      *found.ratio /= ideal;
      absl::StrAppendFormat(&found.detail, "; ideal %.3f", ideal);
    }
    return {found};
  };
  return {.key = field->model().key + ".padding",
          .figures = {{field->model().name + " packed ÷ padded to 384, squad, part of the ideal",
                       0.93, 0.98}},
          .round = round,
          .rounds = kRounds};
}

Measurement Scaling(const FieldRef& field) {
  const auto round = [field](const Settings& settings) -> std::vector<Found> {
    constexpr char kWork[] = "fixed:128";
    Entrant& own = field->Own(Precision::kFp32);
    const double seconds = settings.seconds;
    const auto registers = [&](int threads) {
      return MachineOperations(Limit::kRegisters, Precision::kFp32, threads, seconds);
    };
    const Found machine = RatioOf(registers(field->threads()), registers(1), "op/s");
    Found found = RatioOf(field->Rate(own, kWork, seconds),
                          field->Rate(own, kWork, {"one", kPacked.batching}, seconds), "tokens/s");
    if (found.ratio.has_value() && machine.ratio.has_value()) {
      *found.ratio /= *machine.ratio;
      absl::StrAppendFormat(&found.detail, "; register loop %.3f", *machine.ratio);
    }
    return {found};
  };
  return {.key = field->model().key + ".scaling",
          .figures = {{absl::StrCat(field->model().name, ": ", field->threads(),
                                    " workers ÷ 1, ÷ the same of the register loop"),
                       0.97, 1.00}},
          .round = round,
          .rounds = kRounds};
}

Measurement Maps(const FieldRef& field) {
  const auto round = [field](const Settings& settings) -> std::vector<Found> {
    constexpr char kWork[] = "fixed:128";
    Entrant& own = field->Own(Precision::kFp32);
    const auto without = field->Rate(own, kWork, settings.seconds);
    return {RatioOf(field->Rate(own, kWork, {"apart", "maps:512"}, settings.seconds), without,
                    "tokens/s")};
  };
  return {
      .key = field->model().key + ".maps",
      .figures = {{field->model().name + " S=128: all attention maps returned ÷ none", 0.80, 0.92}},
      .round = round,
      .rounds = kRounds};
}

// fp32 ÷ the machine's matmul rate at one length.
Measurement Limit128(const FieldRef& field, double floor, double aim) {
  return {.key = field->model().key + ".limit",
          .figures = {{absl::StrCat(field->model().name, " fp32, S=128, ", 512 * field->threads(),
                                    " tokens in flight ÷ matmul rate"),
                       floor, aim}},
          .round = [field](const Settings& settings) -> std::vector<Found> {
            return {PartOfMatmulRate(*field, Precision::kFp32, 128, settings.seconds)};
          },
          .rounds = kRounds};
}

// Scratch memory of a worker for sequences up to so many tokens, in MiB.
absl::StatusOr<double> ScratchMib(const Model& model, int64_t tokens) {
  WriteModel(model);
  const auto engine = Engine::Load({.model_dir = model.dir, .max_sequence_tokens = tokens});
  if (!engine.ok()) return engine.status();
  return static_cast<double>((*engine)->info().scratch_bytes_per_worker) / (1 << 20);
}

}  // namespace

Found RatioOf(const absl::StatusOr<double>& numerator, const absl::StatusOr<double>& denominator,
              const std::string& unit) {
  for (const auto* const value : {&numerator, &denominator}) {
    if (!value->ok()) return {std::nullopt, std::string(value->status().message())};
  }
  return report::Ratio(*numerator, *denominator, unit);
}

std::vector<Measurement> MachineMeasurements(int threads) {
  Measurement measurement = {.key = "machine", .rounds = kRounds};
  for (const Precision precision : kPrecisions) {
    measurement.figures.push_back(
        {.name = absl::StrCat(std::string(PrecisionName(precision)), ": matmul ÷ register loop")});
  }
  measurement.round = [threads](const Settings& settings) {
    std::vector<Found> found;
    for (const Precision precision : kPrecisions) {
      const auto registers =
          MeasureMachine(Limit::kRegisters, precision, threads, settings.seconds);
      const auto matmul = MeasureMachine(Limit::kMatmul, precision, threads, settings.seconds);
      if (!registers.ok() || !matmul.ok()) {
        const absl::Status& status = registers.ok() ? matmul.status() : registers.status();
        found.push_back({std::nullopt, std::string(status.message())});
        continue;
      }
      found.push_back(
          report::Ratio(matmul->operations / 1e9, registers->operations / 1e9, "G op/s"));
      absl::StrAppend(&found.back().detail, "; ", matmul->implementation, " / ",
                      registers->implementation);
    }
    return found;
  };
  return {measurement};
}

std::vector<Measurement> EngineMeasurements(const FieldRef& field) {
  const std::string& name = field->model().name;
  if (field->model().key == "minilm") {
    return {Limit128(field, 0.85, 0.93),
            Precisions(field,
                       {{name + " bf16 ÷ fp32, S=128"}, {name + " int8 ÷ fp32, S=128", 2.3, 3.0}}),
            Padding(field), Scaling(field), Lengths(field, {16, 32, 64, 128, 256, 512})};
  }
  return {Limit128(field, 0.90, 0.96),
          Precisions(field, {{name + " bf16 ÷ fp32, S=128", 1.8, 1.95},
                             {name + " int8 ÷ fp32, S=128", 2.8, 3.5}}),
          Padding(field),
          Scaling(field),
          Maps(field),
          Lengths(field, {16, 128, 512})};
}

std::vector<Measurement> LongSequenceMeasurements(const FieldRef& field) {
  const auto speed = [field](const Settings& settings) -> std::vector<Found> {
    return {PartOfMatmulRate(*field, Precision::kFp32, 4096, settings.seconds)};
  };
  // Twice the tokens may cost twice the memory, and not four times.
  const auto memory = [field](const Settings&) -> std::vector<Found> {
    return {RatioOf(ScratchMib(field->model(), 4096), ScratchMib(field->model(), 2048), "MiB")};
  };
  return {{.key = "long",
           .figures = {{"BERT-base with 4,096 positions, fp32, S=4096 ÷ matmul rate", 0.65, 0.80}},
           .round = speed,
           .rounds = kRounds},
          {.key = "long.memory",
           .figures = {{"its scratch memory, S=4096 ÷ S=2048", 2.0, 2.0, Better::kLower}},
           .round = memory,
           .rounds = 1}};
}

}  // namespace encoderd::bench
