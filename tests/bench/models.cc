#include "tests/bench/models.h"

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace encoderd::bench {
namespace {

namespace fs = std::filesystem;

// The folder of random weights, made when it is first asked for; it is whole or absent.
std::string RandomFolder(const std::string& name, const BertShape& shape) {
  const fs::path folder = fs::path(BenchFolder()) / "models" / name;
  if (fs::exists(folder)) return folder;
  const fs::path partial = folder.string() + ".partial";
  fs::remove_all(partial);
  fs::create_directories(partial.parent_path());
  const TempFolder made;
  WriteRandomBert(shape, made);
  fs::copy(made.path(), partial, fs::copy_options::recursive);
  fs::rename(partial, folder);
  return folder;
}

}  // namespace

std::string BenchFolder() { return ENCODERD_SOURCE_DIR "/build/bench"; }

Model MiniLm() {
  Model model = {.name = "MiniLM-L6", .key = "minilm", .shape = kMiniLmL6};
  model.dir = ENCODERD_SOURCE_DIR "/build/real_model/all-MiniLM-L6-v2";
  model.trained = fs::exists(fs::path(model.dir) / "model.safetensors");
  if (!model.trained) model.dir = RandomFolder("minilm", kMiniLmL6);
  return model;
}

Model BertBase(int64_t positions) {
  BertShape shape = kBertBase;
  shape.positions = positions;
  const std::string folder =
      positions == kBertBase.positions ? "bert-base" : absl::StrCat("bert-base-", positions);
  return {.name = "BERT-base", .key = "bert", .shape = shape, .dir = RandomFolder(folder, shape)};
}

double Operations(const BertShape& shape, int64_t tokens) {
  const auto s = static_cast<double>(tokens), h = static_cast<double>(shape.hidden),
             f = static_cast<double>(shape.ffn);
  return static_cast<double>(shape.layers) * s * (8 * h * h + 4 * h * f + 4 * s * h);
}

}  // namespace encoderd::bench
