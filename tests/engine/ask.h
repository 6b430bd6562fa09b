// ask.h — asks an engine in one line, as the server does in many: validate, allocate, run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/log/check.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "engine/validation.h"

namespace encoderd {

inline std::unique_ptr<Engine> LoadEngine(const std::string& model_dir,
                                          Precision precision = Precision::kFp32) {
  auto engine = Engine::Load({.model_dir = model_dir, .precision = precision});
  CHECK(engine.ok()) << engine.status();
  return *std::move(engine);
}

inline std::unique_ptr<Worker> NewWorker(const Engine& engine) {
  auto worker = engine.CreateWorker();
  CHECK(worker.ok()) << worker.status();
  return *std::move(worker);
}

// A validated request and the memory for its answer.
struct Prepared {
  Request request;
  Plan plan;
  Answer answer;

  Prepared(const Engine& engine, Request asked) : request(std::move(asked)) {
    auto checked = Validate(engine.spec(), {.max_response_bytes = int64_t{1} << 32}, request);
    CHECK(std::holds_alternative<Plan>(checked))
        << std::get<Violations>(checked).listed.front().description;
    plan = std::get<Plan>(std::move(checked));
    auto allocated = engine.AllocateAnswer(plan);
    CHECK(allocated.ok()) << allocated.status();
    answer = *std::move(allocated);
  }

  void AppendItems(std::vector<BatchItem>& items) {
    for (size_t i = 0; i < request.sequences.size(); ++i) {
      items.push_back({.request = &request, .plan = &plan, .sequence = i, .answer = &answer});
    }
  }
};

// The answer to a request that runs as a batch of its own; all its sequences must succeed.
inline Answer Ask(const Engine& engine, Worker& worker, Request request) {
  Prepared prepared(engine, std::move(request));
  std::vector<BatchItem> items;
  prepared.AppendItems(items);
  const absl::Status status = worker.Run(items, NeverAbandoned);
  CHECK(status.ok()) << status;
  for (const BatchItem& item : items) CHECK(item.status.ok()) << item.status;
  return std::move(prepared.answer);
}

inline std::span<const float> Floats(const AnswerTensor& tensor) { return tensor.data.floats(); }

}  // namespace encoderd
