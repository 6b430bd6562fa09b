#include "tests/bench/models.h"

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace encoderd::bench {
namespace {

namespace fs = std::filesystem;

std::string RandomFolder(const std::string& name) { return BenchFolder() + "/models/" + name; }

}  // namespace

std::string BenchFolder() { return ENCODERD_SOURCE_DIR "/build/bench"; }

void WriteModel(const Model& model) {
  if (fs::exists(model.dir)) return;
  const std::string partial = model.dir + ".partial";
  fs::remove_all(partial);
  fs::create_directories(fs::path(partial).parent_path());
  const TempFolder made;
  WriteRandomBert(model.shape, made);
  fs::copy(made.path(), partial, fs::copy_options::recursive);
  fs::rename(partial, model.dir);
}

Model MiniLm() {
  Model model = {.name = "MiniLM-L6", .key = "minilm", .shape = kMiniLmL6};
  model.dir = ENCODERD_SOURCE_DIR "/build/real_model/all-MiniLM-L6-v2";
  model.trained = fs::exists(fs::path(model.dir) / "model.safetensors");
  if (!model.trained) model.dir = RandomFolder("minilm");
  return model;
}

Model BertBase(int64_t positions) {
  BertShape shape = kBertBase;
  shape.positions = positions;
  const std::string folder =
      positions == kBertBase.positions ? "bert-base" : absl::StrCat("bert-base-", positions);
  return {.name = "BERT-base", .key = "bert", .shape = shape, .dir = RandomFolder(folder)};
}

double Operations(const BertShape& shape, int64_t tokens) {
  const auto s = static_cast<double>(tokens), h = static_cast<double>(shape.hidden),
             f = static_cast<double>(shape.ffn);
  return static_cast<double>(shape.layers) * s * (8 * h * h + 4 * h * f + 4 * s * h);
}

}  // namespace encoderd::bench
