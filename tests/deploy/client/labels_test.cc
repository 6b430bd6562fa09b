// Goal: labels are the words meant, and nothing but drawable text.
// Method: files with good and bad lines; byte sequences of every kind that UTF-8 forbids.
#include "deploy/client/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/status/status_matchers.h"

namespace encoderd::client {
namespace {

using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(DisplayTextTest, KeepsTextAsItIs) {
  for (const char* text : {"", "[CLS]", "##ing", "größe", "東京", "🙂", "exactly16letters"}) {
    EXPECT_EQ(DisplayText(text), text);
  }
}

TEST(DisplayTextTest, CutsLongTextAtACharacter) {
  EXPECT_EQ(DisplayText("seventeen letters"), "seventeen lette…");
  EXPECT_EQ(DisplayText("ééééééééééééééééé"), "ééééééééééééééé…");
}

TEST(DisplayTextTest, ReplacesWhatIsNotText) {
  EXPECT_EQ(DisplayText("a\x1b[0m"), "a [0m");
  EXPECT_EQ(DisplayText(std::string_view("a\0b", 3)), "a b");
  // A lone continuation, an overlong slash, a surrogate, beyond U+10FFFF, a cut character.
  EXPECT_EQ(DisplayText("\x80"), "\uFFFD");
  EXPECT_EQ(DisplayText("\xc0\xaf"), "\uFFFD\uFFFD");
  EXPECT_EQ(DisplayText("\xe0\x80\xaf"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(DisplayText("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(DisplayText("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(DisplayText("a\xe6\x9d"), "a\uFFFD\uFFFD");
}

TEST(ReadLabelsTest, ReadsOneLabelPerToken) {
  const std::string path = WriteFile("labels.txt", "one\r\n\nthree");
  EXPECT_THAT(ReadLabels(path, 3), IsOkAndHolds(ElementsAre("one", "", "three")));
  EXPECT_THAT(ReadLabels(path, 4),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected 4 lines")));
}

TEST(LabelsFromVocabTest, TakesTheLineOfEachId) {
  const std::string path = WriteFile("vocab.txt", "[PAD]\n[CLS]\nhello\n");
  EXPECT_THAT(LabelsFromVocab(path, std::vector<int32_t>{1, 2, 1}),
              IsOkAndHolds(ElementsAre("[CLS]", "hello", "[CLS]")));
  for (const int32_t id : {3, -1}) {
    EXPECT_THAT(LabelsFromVocab(path, std::vector<int32_t>{id}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("got 3 lines and id")));
  }
}

TEST(ReadLabelsTest, RefusesWhatCannotBeRead) {
  for (const std::string& path : {std::string("/no/such/file"), testing::TempDir()}) {
    EXPECT_THAT(ReadLabels(path, 0),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cannot be read")));
  }
}

}  // namespace
}  // namespace encoderd::client
