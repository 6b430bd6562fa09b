// isa_main.cc — main of tests that also run under a capped instruction set: TEST --isa=avx2 [gtest
// flags].
//
// Exit code 77, which ctest shows as skipped, where this CPU has less than what was asked for.
#include <cstdio>
#include <string>

#include "engine/ops/runtime.h"
#include "gtest/gtest.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::string argument = argc > 1 ? argv[1] : "";
  if (argument.starts_with("--isa=")) {
    const std::string isa = argument.substr(6);
    if (const absl::Status status = encoderd::ops::SetMaxIsa(isa); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
    if (encoderd::ops::IsaName() != isa) {
      std::printf("skipped: this CPU has %s at most\n", encoderd::ops::IsaName().c_str());
      return 77;
    }
  }
  return RUN_ALL_TESTS();
}
