// Goal:   the bits of an answer change only on purpose. Callers keep the numerics id as a cache
//         key, so a change that moves a bit must raise kNumericsRevision in engine/engine.cc, and
//         then the digests here.
// Method: digests of all outputs of three goldens, per instruction set.
#include <string>

#include "engine/io/file.h"
#include "engine/ops/runtime.h"
#include "gtest/gtest.h"
#include "tests/engine/ask.h"
#include "tests/engine/golden.h"

namespace encoderd {
namespace {

std::string DigestOfAllOutputs() {
  std::string bytes;
  auto append = [&](const AnswerTensor& tensor) {
    bytes.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
  };
  for (const char* name : {"bert_deep", "shared_projection", "torch_pre_gelu"}) {
    const Golden golden = ReadGolden(name);
    const auto engine = LoadEngine(golden.folder + "/model");
    const auto worker = NewWorker(*engine);
    for (const auto& golden_case : golden.cases) {
      Request request = golden_case->request;
      request.outputs.all_hidden_states = true;
      request.outputs.last_hidden_state = true;
      request.outputs.attentions = AttentionSpec();
      request.outputs.pooled = {{.kind = Pooling::kMean, .normalize = true}};
      const Answer answer = Ask(*engine, *worker, request);
      append(answer.last_hidden_state);
      for (const AnswerTensor& state : answer.hidden_states) append(state);
      for (const AttentionMap& map : answer.attentions) append(map.tensor);
      append(answer.pooled[0]);
    }
  }
  return Sha256(bytes).substr(0, 16);
}

TEST(GoldenBitsTest, AreThoseOfTheNumericRevision) {
  // fp32 uses nothing of what lies above AVX-512's core, so all of its levels give the same bits.
  const std::string digest = ops::IsaName() == "avx2" ? "dffe83513bd25c8f" : "75887a00631046a0";
  EXPECT_EQ(DigestOfAllOutputs(), digest)
      << ops::IsaName() << ": bits have moved: raise kNumericsRevision and put the new digest here";
}

}  // namespace
}  // namespace encoderd
