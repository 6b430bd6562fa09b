#include "server/check.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/model/spec_json.h"
#include "engine/validation.h"
#include "server/memory_budget.h"
#include "server/server.h"

namespace encoderd {
namespace {

// An encoderd with a model of a few kilobytes and two workers has 73 MB of RSS when idle; the
// rest is for kernels of all row counts and for connections.
constexpr int64_t kProcessBytes = int64_t{150} << 20;

std::string Mebibytes(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string Line(const char* what, const std::string& value) {
  return absl::StrFormat("%-26s %s\n", absl::StrCat(what, ":"), value);
}

std::string Input(const EncoderSpec& spec) {
  return spec.input == InputKind::kTokenIds
             ? absl::StrCat("token ids, vocabulary ", spec.vocab_size, ", token types ",
                            spec.type_vocab_size)
             : absl::StrCat("vectors [S, ", spec.input_dim, "]");
}

std::string Names(const std::vector<std::string>& names) {
  return names.empty() ? "none" : absl::StrCat(names.size(), "\n  ", absl::StrJoin(names, "\n  "));
}

std::string SelfCheck(const std::optional<SelfCheckResult>& check) {
  if (!check.has_value()) return "none";
  return absl::StrCat("passed, ", check->sequences, " sequences: largest error ", check->error,
                      " (", check->where, "), tolerance ", check->tolerance);
}

// A table of what was measured to choose the precision.
std::string Trials(const std::optional<PrecisionChoice>& choice) {
  if (!choice.has_value()) return "";
  std::string table = absl::StrFormat("  chosen by --precision=auto for an error of at most %g\n",
                                      choice->error_max);
  for (const PrecisionTrial& trial : choice->trials) {
    const std::string name(PrecisionName(trial.precision));
    absl::StrAppend(
        &table, trial.refused.empty()
                    ? absl::StrFormat("  %s  error %-10.3g %6.0f tokens/s of one worker\n", name,
                                      trial.error, trial.tokens_per_second)
                    : absl::StrFormat("  %s  refused: %s\n", name, trial.refused));
  }
  return table;
}

}  // namespace

MemoryNeed MemoryNeedOf(const ServedModel& model, const Options& options) {
  const EngineInfo& info = model.engine->info();
  int64_t shadow = 0;
  if (model.reference != nullptr) {
    const EngineInfo& reference = model.reference->info();
    shadow = reference.weights_bytes + reference.scratch_bytes_per_worker +
             info.scratch_bytes_per_worker;
  }
  return {.process = kProcessBytes,
          .weights = info.weights_bytes,
          .scratch = options.workers * info.scratch_bytes_per_worker +
                     (options.workers - 1) * info.scratch_bytes_per_helper,
          .shadow = shadow,
          .calls = options.max_inflight_bytes};
}

std::string CheckReport(const ServedModel& model, const Options& options) {
  const EncoderSpec& spec = model.engine->spec();
  const EngineInfo& info = model.engine->info();
  const MemoryNeed need = MemoryNeedOf(model, options);
  return absl::StrCat(
      Line("model", ModelName(options.model_dir)), Line("family", spec.family),
      Line("input", Input(spec)),
      Line("blocks", absl::StrCat(spec.num_layers, " of hidden ", spec.hidden_size, ", ",
                                  spec.num_heads, " heads, FFN ", spec.ffn_size)),
      Line("outputs", absl::StrJoin(AvailableOutputs(spec), ", ")),
      Line("longest sequence", absl::StrCat(info.max_sequence_tokens, " tokens")),
      Line("precision", info.precision), Trials(model.choice),
      Line("products kept in bf16", Names(info.kept_in_bf16)), Line("instruction set", info.isa),
      Line("rows", info.fixed_row_blocks ? "in blocks of fixed size" : "in batches of any size"),
      Line("numerics id", info.numerics_id), Line("weights sha256", info.weights_sha256),
      Line("tokenizer sha256", info.tokenizer_sha256.empty() ? "none" : info.tokenizer_sha256),
      Line("parameters", absl::StrCat(info.parameters)),
      Line("tensors used", Names(info.tensors_used)),
      Line("tensors not used", Names(info.tensors_unused)),
      Line("tensors without meaning", Names(info.tensors_harmless)),
      Line("tensors not finite", Names(info.tensors_nonfinite)),
      Line("self-check", SelfCheck(info.self_check)),
      Line("files not opened", Names(info.stray_files)), "spec:\n", SpecToJson(spec).dump(2), "\n",
      Line("weights in memory", Mebibytes(need.weights)),
      Line("shadow in fp32", Mebibytes(need.shadow)),
      Line("scratch per worker", Mebibytes(info.scratch_bytes_per_worker)),
      Line("scratch per helper", Mebibytes(info.scratch_bytes_per_helper)),
      Line("workers, helpers", absl::StrCat(options.workers, ", ", options.workers - 1)),
      Line("largest answer", Mebibytes(options.max_response_bytes)),
      Line("largest request", Mebibytes(kMaxRequestBytes)),
      Line("suggested memory request",
           absl::StrCat(
               Mebibytes(need.Total()), " = process ", Mebibytes(need.process),
               " + weights + scratch of all workers and helpers + shadow + calls in flight ",
               Mebibytes(need.calls))));
}

}  // namespace encoderd
