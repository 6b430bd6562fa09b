// engine.h — one loaded encoder and the workers that run it.
//
// Role: everything the server knows of the mathematics. Knows nothing of gRPC, queues, clocks or
//       flags.
//
//   ASSIGN_OR_RETURN(auto engine, Engine::Load({.model_dir = "/models/minilm"}));
//   auto checked = Validate(engine->spec(), limits, request);            // → Plan or Violations
//   ASSIGN_OR_RETURN(Answer answer, engine->AllocateAnswer(plan));
//   ASSIGN_OR_RETURN(auto worker, engine->CreateWorker());               // one per thread
//   absl::Status status = worker->Run(items, NeverAbandoned);            // sequences of any calls
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/spec.h"
#include "engine/precision.h"
#include "engine/request.h"

namespace encoderd {

struct EngineOptions {
  std::string model_dir;
  // Tokens to aim at in a batch of several sequences, at least 1. 512: two of the largest row
  // blocks; the products do not get larger beyond one, so more tokens only add to the latency.
  int64_t max_batch_tokens = 512;
  int64_t max_sequence_tokens = 0;  // 0 = the model's own limit; 8192 for models without one
  // Workers that will run batches at the same time, at least 1. While fewer do, idle cores help
  // with the tiles of a large batch: the engine has workers - 1 threads for that, which sleep
  // otherwise.
  int workers = 1;
  Precision precision = Precision::kFp32;  // of the blocks' products
  bool allow_nonfinite_weights = false;
  bool strict = false;  // tensors in the file that the model does not use are an error
};

// What the folder's self-check has found (self_check.h).
struct SelfCheckResult {
  int64_t sequences = 0;
  // In fp32, the largest |got - expected| / max(1, |expected|); else the length of got - expected as
  // a part of that of expected, of the worst tensor.
  double error = 0;
  std::string where;  // "0/last_hidden_state element 17"
  double tolerance = 0;
};

// What was loaded; never changes.
struct EngineInfo {
  std::string isa;             // instruction set in use, as oneDNN names it
  std::string precision;       // PrecisionName
  std::vector<std::string> kept_in_bf16;  // of an int8 model, products (kept_products.h)
  std::string numerics_id;     // equal ids = equal bits for equal input
  std::string weights_sha256;  // of the bytes of the weights files: WeightFiles::Sha256
  std::string tokenizer_sha256;
  std::vector<std::string> tensors_used;
  std::vector<std::string> tensors_unused;
  std::vector<std::string> tensors_harmless;   // not used either, and known to mean nothing
  std::vector<std::string> tensors_nonfinite;  // which, and what is wrong; where that is allowed
  std::vector<std::string> stray_files;  // safetensors files of the folder that were not opened
  int64_t parameters = 0;
  int64_t weights_bytes = 0;  // packed, in memory
  int64_t scratch_bytes_per_worker = 0;
  int64_t scratch_bytes_per_helper = 0;  // there are workers - 1 helpers
  int64_t max_batch_tokens = 0;  // of several sequences; one alone may have max_sequence_tokens
  int64_t max_sequence_tokens = 0;
  // The self-check found rows that depend on the batch's size; see engine/README.md.
  bool fixed_row_blocks = false;
  std::optional<SelfCheckResult> self_check;  // none: the folder has no selfcheck.safetensors
};

// One sequence of one call, to be run in a batch. Everything is borrowed until Run returns;
// `answer` is written in the rows that belong to this sequence and nowhere else.
struct BatchItem {
  const Request* request = nullptr;
  const Plan* plan = nullptr;
  size_t sequence = 0;  // index into request->sequences
  Answer* answer = nullptr;
  // For a part of a pass (parts.h), [S, hidden]: the rows in front of plan->first_block, read
  // unless that is 0; if plan->keeps_hidden, overwritten with the rows behind the part's last
  // block.
  std::span<float> hidden;
  // Set by Run: OK, or kInternal when this sequence's outputs are not finite. Other items of the
  // batch are not affected.
  absl::Status status;
};

// For batches that somebody will wait for to the end.
inline bool NeverAbandoned() { return false; }

// A thread's own part of the engine: scratch memory and numeric environment. Not thread-safe;
// create and use it in one thread.
class Worker {
 public:
  virtual ~Worker() = default;

  // Runs the batch and writes every answer. The tensors of an item do not depend, to the bit, on
  // the other items. Items whose plans start at different blocks run one after the other.
  // `abandoned` is asked in this thread, once before each block: whether nobody waits for the batch
  // any more. Errors: kCancelled once it has said so, kInternal when a kernel fails; then no item's
  // answer may be used, and the worker is as good as before.
  // REQUIRES: the items' tokens add up to at most max_batch_tokens, or there is a single item.
  virtual absl::Status Run(std::span<BatchItem> items, absl::FunctionRef<bool()> abandoned) = 0;
};

// Immutable and thread-safe after Load; it must outlive its workers.
class Engine {
 public:
  virtual ~Engine() = default;

  // Reads the folder, packs the weights, builds and checks the kernels, and asks the model what the
  // folder's self-check asks. Errors say what is wrong with the options or the folder, and where:
  // kInvalidArgument, or the code with which a file cannot be read; kFailedPrecondition for a
  // precision that this CPU does not run; kResourceExhausted, also for
  // threads; kInternal when oneDNN fails.
  static absl::StatusOr<std::unique_ptr<Engine>> Load(const EngineOptions& options);

  virtual const EncoderSpec& spec() const = 0;
  virtual const EngineInfo& info() const = 0;

  // Memory for the answer that a plan promises. Errors: kResourceExhausted.
  virtual absl::StatusOr<Answer> AllocateAnswer(const Plan& plan) const = 0;

  virtual absl::StatusOr<std::unique_ptr<Worker>> CreateWorker() const = 0;
  // One beside EngineOptions::workers, that neither gets help nor keeps others from it.
  virtual absl::StatusOr<std::unique_ptr<Worker>> CreateLoneWorker() const = 0;
};

}  // namespace encoderd
