// Goal:   a file is read exactly, or refused with a line that names the file, the tensor, what was
//         expected and what was found; nothing in a file can make the reader crash, hang or
//         allocate.
// Method: files written byte by byte, one for each error of the reference implementation; sweeps
//         over sizes and offsets; and random damage, judged by what acceptance must imply.
#include "engine/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/engine/io/safetensors_writer.h"
#include "tests/engine/io/temp_folder.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Matcher;

class SafetensorsFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<SafetensorsFile> Open(std::string_view bytes) {
    return SafetensorsFile::Open(folder_.Write("model.safetensors", bytes));
  }

  void ExpectRefused(std::string_view bytes, const Matcher<absl::string_view>& message) {
    EXPECT_THAT(Open(bytes).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(folder_.Path("model.safetensors")), message)));
  }

  // A file with this header and as much data.
  void ExpectHeaderRefused(std::string_view header, size_t data_bytes,
                           const Matcher<absl::string_view>& message) {
    ExpectRefused(RawSafetensors(header, std::string(data_bytes, '\0')), message);
  }

  std::vector<float> Read(const SafetensorsFile& file, std::string_view name) {
    const TensorEntry* entry = file.Find(name);
    if (entry == nullptr) {
      ADD_FAILURE() << "no tensor " << name;
      return {};
    }
    std::vector<float> values(static_cast<size_t>(entry->elements));
    EXPECT_THAT(file.ReadFp32(*entry, values), IsOk());
    return values;
  }

  TempFolder folder_;
};

std::string LengthPrefix(uint64_t length) { return BytesOf(std::vector<uint64_t>{length}); }

const std::vector<float> kValues = {1.0f, -2.5f, 0.0f, 1024.0f, -0.0f, 0.25f};

// ---- What is legal ------------------------------------------------------------------------------

TEST_F(SafetensorsFileTest, ReadsEveryFloatTypeExactlyAndMixed) {
  const auto file = Open(Safetensors(
      {FloatTensor("a", {2, 3}, kValues, "F32"), FloatTensor("b", {3, 2}, kValues, "BF16"),
       FloatTensor("c", {6}, kValues, "F16"), FloatTensor("d", {1, 6, 1}, kValues, "F64")}));
  ASSERT_THAT(file, IsOk());
  for (const char* name : {"a", "b", "c", "d"}) {
    const std::vector<float> values = Read(*file, name);
    EXPECT_EQ(BytesOf(values), BytesOf(kValues)) << name;  // bytes: -0 is not 0
  }
  EXPECT_EQ(file->Find("b")->dtype, "BF16");
  EXPECT_THAT(file->Find("d")->shape, ElementsAre(1, 6, 1));
  EXPECT_EQ(file->Find("e"), nullptr);
}

TEST_F(SafetensorsFileTest, KeepsFp16Subnormals) {
  const auto file = Open(
      Safetensors({{"w", "F16", {3}, BytesOf(std::vector<uint16_t>{0x0001, 0x83ff, 0x8000})}}));
  ASSERT_THAT(file, IsOk());

  const std::vector<float> values = Read(*file, "w");
  EXPECT_EQ(values[0], 0x1p-24f);
  EXPECT_EQ(values[1], -0x3ffp-24f);
  EXPECT_TRUE(values[2] == 0.0f && std::signbit(values[2]));
}

TEST_F(SafetensorsFileTest, ReadsTensorsLongerThanOnePiece) {
  std::vector<float> values(100'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 251);
  for (const char* dtype : {"F32", "BF16", "F64"}) {
    const auto file = Open(Safetensors({FloatTensor("w", {100, 1000}, values, dtype)}));
    ASSERT_THAT(file, IsOk());
    EXPECT_EQ(Read(*file, "w"), values) << dtype;
  }
}

// Data that starts at an odd address, after a 1-byte and a 2-byte tensor.
TEST_F(SafetensorsFileTest, ReadsTensorsAtAnyAlignment) {
  const std::vector<float> values(16, 1.0f / 3);
  for (size_t header_bytes = 400; header_bytes < 409; ++header_bytes) {
    for (const char* dtype : {"F32", "BF16", "F16", "F64"}) {
      const auto file = Open(Safetensors({{"flag", "BOOL", {1}, std::string(1, '\1')},
                                          FloatTensor("w", {4, 4}, values, dtype),
                                          FloatTensor("one", {1}, {1}, "BF16"),
                                          FloatTensor("v", {4, 4}, values)},
                                         header_bytes));
      ASSERT_THAT(file, IsOk());
      EXPECT_NEAR(Read(*file, "w")[15], 1.0 / 3, 1e-3);
      EXPECT_EQ(Read(*file, "v"), values);
    }
  }
}

TEST_F(SafetensorsFileTest, LoadsHeadersOfEverySizeAroundReadBoundaries) {
  std::vector<size_t> sizes;
  for (size_t n = 4080; n <= 4104; ++n) sizes.push_back(n);
  for (size_t n = 65'520; n <= 65'544; ++n) sizes.push_back(n);
  for (size_t n = 99'990; n <= 100'010; ++n) sizes.push_back(n);
  for (const size_t header_bytes : sizes) {
    const auto file = Open(Safetensors({FloatTensor("w", {6}, kValues)}, header_bytes));
    ASSERT_THAT(file, IsOk()) << header_bytes;
    EXPECT_EQ(BytesOf(Read(*file, "w")), BytesOf(kValues));
  }
}

TEST_F(SafetensorsFileTest, TakesHeadersInAnyOrderWithMetadataScalarsAndEmptyTensors) {
  const auto file = Open(RawSafetensors(
      R"({"z":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[4,8]},)"
      R"("none":{"dtype":"F32","shape":[3,0],"data_offsets":[4,4]}}  )",
      BytesOf(std::vector<float>{1, 2})));
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(Read(*file, "z"), ElementsAre(1.0f));
  EXPECT_THAT(Read(*file, "a"), ElementsAre(2.0f));
  EXPECT_TRUE(Read(*file, "none").empty());
  EXPECT_EQ(file->tensors().size(), 3u);
  EXPECT_EQ(file->tensors()[0].name, "z");
}

TEST_F(SafetensorsFileTest, MayHoldNoTensorAtAll) {
  const auto file = Open(RawSafetensors("{}", ""));
  ASSERT_THAT(file, IsOk());
  EXPECT_TRUE(file->tensors().empty());
}

TEST_F(SafetensorsFileTest, HoldsOtherDtypesButReadsNoneAsWeights) {
  const auto file = Open(Safetensors({{"ids", "I64", {1, 2}, std::string(16, '\0')},
                                      {"f8", "F8_E4M3", {3}, std::string(3, '\0')},
                                      {"i32", "I32", {2}, std::string(8, '\0')},
                                      {"new", "Q3_X", {5}, std::string(2, '\0')}}));
  ASSERT_THAT(file, IsOk());
  for (const TensorEntry& entry : file->tensors()) {
    std::vector<float> values(static_cast<size_t>(entry.elements));
    EXPECT_THAT(file->ReadFp32(entry, values),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("\"" + entry.name + "\""), HasSubstr(entry.dtype))));
  }
  std::vector<std::byte> bytes(3);
  EXPECT_THAT(file->ReadBytes(*file->Find("f8"), bytes), IsOk());
}

TEST_F(SafetensorsFileTest, RefusesToReadIntoTheWrongRoom) {
  const auto file = Open(Safetensors({FloatTensor("w", {6}, kValues)}));
  ASSERT_THAT(file, IsOk());
  std::vector<float> values(5);
  EXPECT_THAT(file->ReadFp32(*file->Find("w"), values),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("6 elements"), HasSubstr("got 5"))));
}

// ---- Lengths ------------------------------------------------------------------------------------

TEST_F(SafetensorsFileTest, RefusesHeaderLengthsThatCannotBe) {
  const std::string rest(8, ' ');
  ExpectRefused(LengthPrefix(std::numeric_limits<uint64_t>::max()) + rest,
                AllOf(HasSubstr("18446744073709551615"), HasSubstr("16 bytes")));
  ExpectRefused(LengthPrefix(std::numeric_limits<uint64_t>::max() - 7) + rest,
                HasSubstr("16 bytes"));  // + 8 would be 0
  ExpectRefused(LengthPrefix(16) + rest, AllOf(HasSubstr("24 bytes"), HasSubstr("found 16")));
  ExpectRefused(LengthPrefix(0) + rest, HasSubstr("header length 0"));
  ExpectRefused(LengthPrefix(1) + "{", HasSubstr("header length 1"));
  ExpectRefused("", HasSubstr("found 0"));
  ExpectRefused("1234567", HasSubstr("found 7"));
}

TEST_F(SafetensorsFileTest, RefusesHugeHeadersBeforeAllocatingThem) {
  const std::string path = folder_.Write("model.safetensors", LengthPrefix(100'000'001));
  std::filesystem::resize_file(path, 200'000'000);  // sparse
  rusage before;
  getrusage(RUSAGE_SELF, &before);
  EXPECT_THAT(SafetensorsFile::Open(path),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("100000001"), HasSubstr("limit of 100000000"),
                             HasSubstr("200000000 bytes"))));
  rusage after;
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 1024);  // KiB of peak memory
}

TEST_F(SafetensorsFileTest, SaysHowMuchOfACutOffFileIsThere) {
  const std::string whole =
      Safetensors({FloatTensor("a", {6}, kValues), FloatTensor("b", {6}, kValues)});
  const size_t header_end = whole.size() - 48;
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const size_t expected = bytes < 8 ? 8 : bytes < header_end ? header_end : whole.size();
    ExpectRefused(whole.substr(0, bytes), AllOf(HasSubstr(absl::StrCat(expected, " bytes")),
                                                HasSubstr(absl::StrCat("found ", bytes))));
  }
  ExpectRefused(whole + "x", AllOf(HasSubstr(absl::StrCat("expected ", whole.size(), " bytes")),
                                   HasSubstr(absl::StrCat("found ", whole.size() + 1))));
}

// ---- Headers ------------------------------------------------------------------------------------

TEST_F(SafetensorsFileTest, RefusesWhatIsNotAHeader) {
  ExpectHeaderRefused(" {}", 0, HasSubstr("start with '{'"));
  ExpectHeaderRefused("[1]", 0, HasSubstr("starts with '['"));
  ExpectHeaderRefused("\xff{}", 0, HasSubstr("\\xff"));
  ExpectHeaderRefused("{\"a\":", 0, HasSubstr("header: parse error"));
  ExpectHeaderRefused("{\"\xff\":1}", 0, HasSubstr("UTF-8"));
  ExpectHeaderRefused("{}}", 0, HasSubstr("parse error"));
}

TEST_F(SafetensorsFileTest, NamesKeysThatAreThereTwice) {
  ExpectHeaderRefused(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                      2, HasSubstr("\"w\" is there twice"));
  ExpectHeaderRefused(R"({"__metadata__":{},"__metadata__":{}})", 0,
                      HasSubstr("\"__metadata__\" is there twice"));
  ExpectHeaderRefused(R"({"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
                      HasSubstr("\"dtype\" is there twice"));
}

TEST_F(SafetensorsFileTest, SurvivesDeepNestingInMetadata) {
  ExpectHeaderRefused(absl::StrCat(R"({"__metadata__":{"x":)", std::string(10'000, '['),
                                   std::string(10'000, ']'), "}}"),
                      0, HasSubstr("deeper than 64"));
}

TEST_F(SafetensorsFileTest, RefusesMetadataThatIsNotText) {
  for (const char* header :
       {R"({"__metadata__":1})", R"({"__metadata__":{"a":1}})",
        R"({"__metadata__":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})"}) {
    ExpectHeaderRefused(header, 0, HasSubstr("__metadata__"));
  }
}

TEST_F(SafetensorsFileTest, RefusesMalformedEntries) {
  const Matcher<absl::string_view> shape = AllOf(HasSubstr("\"w\""), HasSubstr("\"shape\""));
  const Matcher<absl::string_view> offsets =
      AllOf(HasSubstr("\"w\""), HasSubstr("\"data_offsets\""));
  ExpectHeaderRefused(R"({"w":1})", 4, HasSubstr("\"w\""));
  ExpectHeaderRefused(R"({"w":{"shape":[1],"data_offsets":[0,4]}})", 4, HasSubstr("\"dtype\""));
  ExpectHeaderRefused(R"({"w":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})", 4,
                      HasSubstr("\"dtype\""));
  for (const char* value :
       {"", R"("shape":1,)", R"("shape":[-1],)", R"("shape":[1.0],)", R"("shape":["1"],)",
        R"("shape":[[1]],)", R"("shape":[9223372036854775808],)", R"("shape":[1e2],)"}) {
    ExpectHeaderRefused(absl::StrCat(R"({"w":{"dtype":"F32",)", value, R"("data_offsets":[0,4]}})"),
                        4, shape);
  }
  for (const char* value :
       {"", R"(,"data_offsets":4)", R"(,"data_offsets":[0])", R"(,"data_offsets":[0,4,8])",
        R"(,"data_offsets":[4,0])", R"(,"data_offsets":[-4,0])", R"(,"data_offsets":[0,4.0])",
        R"(,"data_offsets":[0,18446744073709551615])"}) {
    ExpectHeaderRefused(absl::StrCat(R"({"w":{"dtype":"F32","shape":[1])", value, "}}"), 4,
                        offsets);
  }
}

TEST_F(SafetensorsFileTest, RefusesSizesThatDisagree) {
  ExpectHeaderRefused(
      R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})", 20,
      AllOf(HasSubstr("\"w\""), HasSubstr("[2,3] of F32 takes 24 bytes"), HasSubstr("hold 20")));
  ExpectHeaderRefused(R"({"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,8]}})", 8,
                      HasSubstr("takes 4 bytes"));
  ExpectHeaderRefused(R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1,
                      HasSubstr("\"w\""));  // a byte and a half
  ExpectHeaderRefused(
      R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
      AllOf(HasSubstr("\"w\""), HasSubstr("64 bits")));
  ExpectHeaderRefused(R"({"w":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]}})",
                      0, AllOf(HasSubstr("\"w\""), HasSubstr("64 bits")));
}

// ---- Coverage -----------------------------------------------------------------------------------

TEST_F(SafetensorsFileTest, NamesBothTensorsThatOverlap) {
  ExpectHeaderRefused(R"({"k":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                      R"("v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                      8, AllOf(HasSubstr("\"k\""), HasSubstr("\"v\""), HasSubstr("overlap by 8")));
  ExpectHeaderRefused(R"({"k":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                      R"("v":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                      12, AllOf(HasSubstr("\"k\""), HasSubstr("\"v\""), HasSubstr("overlap by 4")));
}

TEST_F(SafetensorsFileTest, NamesBothSidesOfAGap) {
  ExpectHeaderRefused(R"({"k":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                      R"("v":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                      12,
                      AllOf(HasSubstr("4 bytes between"), HasSubstr("\"k\""), HasSubstr("\"v\"")));
  ExpectHeaderRefused(R"({"v":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6,
                      AllOf(HasSubstr("2 bytes between the header"), HasSubstr("\"v\"")));
}

TEST_F(SafetensorsFileTest, RefusesDataBeyondTheFile) {
  ExpectHeaderRefused(
      R"({"w":{"dtype":"U8","shape":[1152921504606846975],"data_offsets":[0,1152921504606846975]}})",
      4, AllOf(HasSubstr("\"w\""), HasSubstr("found")));
}

// ---- Files that change --------------------------------------------------------------------------

TEST_F(SafetensorsFileTest, KeepsWhatItReadWhenTheFileIsOverwrittenAndTruncated) {
  const auto file = Open(Safetensors({FloatTensor("w", {6}, kValues)}));
  ASSERT_THAT(file, IsOk());
  const std::vector<float> before = Read(*file, "w");
  folder_.Write("model.safetensors", "");
  EXPECT_EQ(BytesOf(before), BytesOf(kValues));
  std::vector<float> after(6);
  EXPECT_THAT(file->ReadFp32(*file->Find("w"), after),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("become shorter")));
}

// ---- Random damage ------------------------------------------------------------------------------

// What an accepted file promises, checked without the reader's own arithmetic.
void ExpectSound(const SafetensorsFile& file, size_t file_bytes) {
  std::vector<int> owners(file_bytes, 0);
  for (const TensorEntry& entry : file.tensors()) {
    ASSERT_LE(entry.begin, entry.end);
    ASSERT_LE(entry.end, file_bytes);
    for (uint64_t i = entry.begin; i < entry.end; ++i) ASSERT_EQ(owners[i]++, 0) << entry.name;
    std::vector<std::byte> bytes(entry.bytes());
    ASSERT_THAT(file.ReadBytes(entry, bytes), IsOk());
  }
}

TEST_F(SafetensorsFileTest, AcceptsDamagedFilesOnlyWhenEveryTensorIsSound) {
  const std::string whole = Safetensors({FloatTensor("a", {2, 3}, kValues),
                                         FloatTensor("b", {6}, kValues, "BF16"),
                                         {"c", "I64", {1}, std::string(8, '\0')}});
  const std::string_view kTokens = "0123456789{}[]:,\"-.e \xff";
  std::mt19937 random(20240722);
  const auto below = [&random](size_t limit) { return random() % limit; };
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = whole;
    for (size_t edits = 1 + below(3); edits > 0; --edits) {
      const size_t place = below(bytes.size());
      const char token = kTokens[below(kTokens.size())];
      switch (below(5)) {
        case 0:
          bytes[place] = token;
          break;
        case 1:
          bytes[place] = static_cast<char>(below(256));
          break;
        case 2:
          bytes.erase(place, 1 + below(4));
          break;
        case 3:
          bytes.insert(place, 1, token);
          break;
        case 4:
          bytes[below(8)] = static_cast<char>(below(256));
          break;
      }
      if (bytes.size() < 9) break;
    }
    const auto file = Open(bytes);
    if (!file.ok()) continue;
    ++accepted;
    ExpectSound(*file, bytes.size());
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
  // Damage to the data and to names is accepted: the property was put to the test.
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace encoderd
