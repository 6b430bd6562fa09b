// engine_contender.cc: this engine behind the protocol of contender.h.
//
// usage: engine_contender --model=DIR --precision=fp32 --threads=N
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/log/check.h"
#include "absl/log/globals.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/ops/runtime.h"
#include "engine/precision.h"
#include "tests/bench/engine_runner.h"

namespace encoderd::bench {
namespace {

using nlohmann::json;

struct Flags {
  std::string model, precision = "fp32";
  int threads = 1;
};

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string value = word.substr(word.find('=') + 1);
    if (absl::StartsWith(word, "--model=")) {
      flags.model = value;
    } else if (absl::StartsWith(word, "--precision=")) {
      flags.precision = value;
    } else {
      CHECK(absl::StartsWith(word, "--threads=") && absl::SimpleAtoi(value, &flags.threads))
          << "unknown argument " << word;
    }
  }
  return flags;
}

absl::StatusOr<std::unique_ptr<Engine>> LoadAt(const Flags& flags) {
  const std::optional<Precision> precision = PrecisionNamed(flags.precision);
  CHECK(precision.has_value()) << "unknown precision " << flags.precision;
  return Engine::Load({.model_dir = flags.model, .precision = *precision});
}

class Server {
 public:
  explicit Server(EngineRunner runner) : runner_(std::move(runner)) {}

  json Hello() const {
    const EngineInfo& info = runner_.engine().info();
    return {{"version", absl::StrCat("encoderd on ", ops::MathsLibrary(), ", ", info.isa)},
            {"ways", {"apart"}}};
  }

  json Answer(const json& request) {
    const std::string what = request.at("do");
    if (what == "learn") {
      works_[request.at("work")] = {.name = request.at("work"),
                                    .sequences = request.at("sequences")};
      return json::object();
    }
    if (what == "encode") {
      const std::vector<float> hidden = runner_.Encode(request.at("sequences"));
      const absl::string_view bytes(reinterpret_cast<const char*>(hidden.data()),
                                    hidden.size() * sizeof(float));
      return {{"hidden", absl::Base64Escape(bytes)}};
    }
    if (what == "time") {
      return {{"rate", runner_.Rate(works_.at(request.at("work")), request.at("batching"),
                                    request.at("way") == "one", request.at("seconds"))}};
    }
    CHECK_EQ(what, "kernels");
    return {{"kernels",
             absl::StrCat(runner_.engine().info().precision, " on ", runner_.engine().info().isa)}};
  }

 private:
  EngineRunner runner_;
  std::map<std::string, Work> works_;
};

int Main(int argc, char** argv) {
  absl::SetStderrThreshold(absl::LogSeverityAtLeast::kError);
  const Flags flags = ParseFlags(argc, argv);
  auto engine = LoadAt(flags);
  if (!engine.ok()) {
    std::cout << json({{"error", std::string(engine.status().message())}}) << std::endl;
    return 1;
  }
  Server server(EngineRunner(*std::move(engine), flags.threads));
  std::cout << server.Hello() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << server.Answer(json::parse(line)) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace encoderd::bench

int main(int argc, char** argv) { return encoderd::bench::Main(argc, argv); }
