// Goal:   weights in several files are one list of tensors, and an index that does not describe
//         them is refused with every fault in one report.
// Method: two tiny files and an index, each broken in one way.
#include "engine/model/weight_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/io/file.h"
#include "engine/model/model_folder.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::nlohmann::json;
using ::testing::_;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Matcher;
using ::testing::Not;

constexpr char kFirst[] = "model-00001-of-00002.safetensors";
constexpr char kSecond[] = "model-00002-of-00002.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

absl::StatusOr<WeightFiles> Open(const std::string& dir) {
  FaultReport report;
  std::optional<WeightFiles> files = WeightFiles::Open(dir, report);
  if (!report.empty()) return report.ToStatus();
  return *std::move(files);
}

class WeightFilesTest : public ::testing::Test {
 protected:
  void WriteIndex(const json& weight_map) {
    folder_.Write(kIndex,
                  json({{"metadata", {{"total_size", 20}}}, {"weight_map", weight_map}}).dump());
  }

  void WriteShards() {
    folder_.Write(kFirst, Safetensors({FloatTensor("a", {2}, {1, 2})}));
    folder_.Write(kSecond,
                  Safetensors({FloatTensor("b", {1}, {3}), FloatTensor("c", {2}, {4, 5})}));
    WriteIndex({{"a", kFirst}, {"b", kSecond}, {"c", kSecond}});
  }

  void ExpectRefused(const Matcher<absl::string_view>& message) {
    EXPECT_THAT(Open(folder_.path()), StatusIs(absl::StatusCode::kInvalidArgument,
                                               AllOf(HasSubstr(folder_.Path(kIndex)), message)));
  }

  TempFolder folder_;
};

TEST_F(WeightFilesTest, ReadsEachTensorFromItsOwnFile) {
  WriteShards();
  const auto files = Open(folder_.path());
  ASSERT_THAT(files.status(), IsOk());
  EXPECT_EQ(files->path(), folder_.Path(kIndex));
  float next = 1;
  for (const TensorEntry& entry : files->tensors()) {
    std::vector<float> values(static_cast<size_t>(entry.elements));
    ASSERT_THAT(files->ReadFp32(entry, values), IsOk());
    for (const float value : values) EXPECT_EQ(value, next++) << entry.name;
  }
  EXPECT_EQ(next, 6);
  EXPECT_EQ(files->Find("d"), nullptr);
}

// The same encoder in one file and in two, named in either order, has the same tensors.
TEST_F(WeightFilesTest, ShardsHoldTheEncoderThatOneFileHolds) {
  const EncoderSpec spec = *SpecFromConfig(TinyBert());
  const std::vector<TestTensor> tensors = TinyWeights(spec);
  folder_.Write("one/config.json", TinyBert().dump());
  folder_.Write("one/model.safetensors", Safetensors(tensors));
  folder_.Write("two/config.json", TinyBert().dump());
  std::vector<TestTensor> even, odd;
  json weight_map;
  for (size_t i = 0; i < tensors.size(); ++i) {
    (i % 2 == 0 ? even : odd).push_back(tensors[i]);
    weight_map[tensors[i].name] = i % 2 == 0 ? kSecond : kFirst;
  }
  folder_.Write(absl::StrCat("two/", kFirst), Safetensors(odd));
  folder_.Write(absl::StrCat("two/", kSecond), Safetensors(even));
  folder_.Write(absl::StrCat("two/", kIndex), json({{"weight_map", weight_map}}).dump());
  const auto one = OpenModelFolder(folder_.Path("one"));
  const auto two = OpenModelFolder(folder_.Path("two"));
  ASSERT_THAT(one.status(), IsOk());
  ASSERT_THAT(two.status(), IsOk());
  EXPECT_EQ(one->spec, two->spec);
  EXPECT_EQ(one->checkpoint.parameters(), two->checkpoint.parameters());
  for (const TestTensor& tensor : tensors) {
    const auto a = one->checkpoint.Read(tensor.name);
    const auto b = two->checkpoint.Read(tensor.name);
    ASSERT_THAT(b.status(), IsOk());
    EXPECT_TRUE(std::ranges::equal(a->bytes(), b->bytes())) << tensor.name;
  }
}

// ---- Which files --------------------------------------------------------------------------------

TEST_F(WeightFilesTest, OpensOnlyWhatTheIndexNames) {
  WriteShards();
  folder_.Write("model.safetensors", Safetensors({FloatTensor("a", {3}, {7, 8, 9})}));
  folder_.Write("adapter_model.safetensors", "no safetensors file at all");
  folder_.Write("selfcheck.safetensors", "expected outputs are no weights");
  const auto files = Open(folder_.path());
  ASSERT_THAT(files.status(), IsOk());
  EXPECT_THAT(files->strays(), ElementsAre("adapter_model.safetensors", "model.safetensors"));
  EXPECT_THAT(files->Find("a")->shape, ElementsAre(2));
}

TEST_F(WeightFilesTest, OpensOneFileWithoutAnIndex) {
  folder_.Write("model.safetensors", Safetensors({FloatTensor("a", {1}, {1})}));
  EXPECT_THAT(Open(folder_.path())->strays(), IsEmpty());
  folder_.Write(kFirst, Safetensors({FloatTensor("b", {1}, {1})}));
  const auto files = Open(folder_.path());
  ASSERT_THAT(files.status(), IsOk());
  EXPECT_THAT(files->strays(), ElementsAre(kFirst));
  EXPECT_EQ(files->Find("b"), nullptr);
}

TEST_F(WeightFilesTest, FollowsLinksAsCachesHaveThem) {
  WriteShards();
  std::filesystem::create_directory(folder_.Path("snapshot"));
  for (const char* name : {kFirst, kSecond, kIndex}) {
    std::filesystem::create_symlink(folder_.Path(name),
                                    folder_.Path(absl::StrCat("snapshot/", name)));
  }
  EXPECT_THAT(Open(folder_.Path("snapshot")), IsOk());
}

// ---- Digests ------------------------------------------------------------------------------------

TEST_F(WeightFilesTest, DigestOfOneFileIsItsOwn) {
  folder_.Write("model.safetensors", Safetensors({FloatTensor("a", {1}, {1})}));
  EXPECT_EQ(*Open(folder_.path())->Sha256(),
            *FileSha256(*File::Open(folder_.Path("model.safetensors"))));
}

TEST_F(WeightFilesTest, DigestOfSeveralIsThatOfTheLinesOfSha256sum) {
  WriteShards();
  const auto digest = [this](const char* name) {
    return *FileSha256(*File::Open(folder_.Path(name)));
  };
  const std::string before = *Open(folder_.path())->Sha256();
  EXPECT_EQ(before, Sha256(absl::StrCat(digest(kFirst), "  ", kFirst, "\n", digest(kSecond), "  ",
                                        kSecond, "\n")));
  folder_.Write(kFirst, Safetensors({FloatTensor("a", {2}, {1, 2.5f})}));
  EXPECT_NE(*Open(folder_.path())->Sha256(), before);
}

// ---- Shards that are not there ------------------------------------------------------------------

TEST_F(WeightFilesTest, NamesEveryShardThatIsMissing) {
  WriteShards();
  std::filesystem::remove(folder_.Path(kSecond));
  ExpectRefused(AllOf(HasSubstr(kSecond), Not(HasSubstr(kFirst))));
  std::filesystem::remove(folder_.Path(kFirst));
  ExpectRefused(AllOf(HasSubstr("missing"), HasSubstr(kFirst), HasSubstr(kSecond)));
}

TEST_F(WeightFilesTest, ReportsEmptyCutAndMissingShardsTogether) {
  WriteShards();
  folder_.Write(kSecond, "");
  ExpectRefused(AllOf(HasSubstr(kSecond), HasSubstr("found 0")));
  WriteShards();
  std::filesystem::resize_file(folder_.Path(kSecond),
                               std::filesystem::file_size(folder_.Path(kSecond)) - 1);
  ExpectRefused(AllOf(HasSubstr(kSecond), HasSubstr("expected")));
  std::filesystem::remove(folder_.Path(kFirst));
  ExpectRefused(AllOf(HasSubstr("2 faults"), HasSubstr(kFirst), HasSubstr(kSecond)));
}

TEST_F(WeightFilesTest, RefusesPathsOutsideTheFolder) {
  WriteShards();
  folder_.Write("outside/x.safetensors", Safetensors({FloatTensor("b", {1}, {3})}));
  for (const char* path : {"../x.safetensors", "/etc/passwd", "a/../../x.safetensors", ".."}) {
    WriteIndex({{"a", kFirst}, {"b", path}});
    ExpectRefused(AllOf(HasSubstr("\"b\""), HasSubstr(path), HasSubstr("inside the folder")));
  }
}

// ---- An index that does not fit its files -------------------------------------------------------

TEST_F(WeightFilesTest, RefusesATensorThatIsNotWhereTheIndexPlacesIt) {
  WriteShards();
  WriteIndex({{"a", kSecond}, {"b", kSecond}, {"d", kFirst}});
  ExpectRefused(AllOf(HasSubstr("2 faults"), HasSubstr(absl::StrCat("it is in ", kFirst)),
                      HasSubstr("\"d\""), HasSubstr("in none of the files")));
}

TEST_F(WeightFilesTest, RefusesATensorThatIsInTwoShards) {
  WriteShards();
  folder_.Write(kFirst, Safetensors({FloatTensor("a", {2}, {1, 2}), FloatTensor("b", {1}, {3})}));
  ExpectRefused(AllOf(HasSubstr("tensor \"b\" is in"), HasSubstr(kFirst), HasSubstr(kSecond)));
}

// ---- An index that is none ----------------------------------------------------------------------

TEST_F(WeightFilesTest, RefusesAnIndexOfOtherKinds) {
  WriteShards();
  for (const char* text : {"[]", "3", "{}", R"({"weight_map": []})", R"({"weight_map": {}})",
                           R"({"weight_map": null})"}) {
    folder_.Write(kIndex, text);
    ExpectRefused(HasSubstr("expected an object with \"weight_map\""));
  }
  for (const json& place : {json(1), json(nullptr), json({kFirst}), json::object(), json("")}) {
    WriteIndex({{"a", place}});
    ExpectRefused(AllOf(HasSubstr("tensor \"a\""), HasSubstr("expected a path")));
  }
  for (const char* text : {"", "{", R"({"weight_map": {"a": "x", "a": "y"}})", "\xff"}) {
    folder_.Write(kIndex, text);
    ExpectRefused(_);
  }
  folder_.Write(kIndex, std::string(100'000, '['));
  ExpectRefused(HasSubstr("nested deeper"));
}

TEST_F(WeightFilesTest, RefusesAnIndexOfAbsurdSize) {
  WriteShards();
  std::filesystem::resize_file(folder_.Path(kIndex), uint64_t{1} << 33);
  ExpectRefused(HasSubstr("16777216"));
  json weight_map;
  for (size_t i = 0; i <= WeightFiles::kMaxShards; ++i) {
    weight_map[absl::StrCat("t", i)] = absl::StrCat("f", i);
  }
  WriteIndex(weight_map);
  ExpectRefused(HasSubstr("names 257 files; expected at most 256"));
}

TEST_F(WeightFilesTest, ReportsManyFaultsInABoundedText) {
  json weight_map;
  for (int i = 0; i < 10'000; ++i) weight_map[absl::StrCat("t", i)] = "..";
  WriteIndex(weight_map);
  ExpectRefused(AllOf(HasSubstr("10000 faults"), HasSubstr("9980 more")));
}

}  // namespace
}  // namespace encoderd
