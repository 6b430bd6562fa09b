// Goal:   a file gives exactly the bytes asked for, or says what is wrong with it.
// Method: real files, among them ones that change while they are open.
#include "engine/io/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <utility>
#include <vector>

#include "absl/status/status_matchers.h"
#include "tests/engine/io/temp_folder.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FileTest, ReadsFromAnyPosition) {
  TempFolder folder;
  auto file = File::Open(folder.Write("f", "abcdef"));
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(file->size_bytes(), 6u);
  std::string text(3, ' ');
  ASSERT_THAT(file->ReadAt(2, std::as_writable_bytes(std::span(text))), IsOk());
  EXPECT_EQ(text, "cde");
}

TEST(FileTest, StaysOpenWhenMoved) {
  TempFolder folder;
  auto opened = File::Open(folder.Write("f", "abc"));
  ASSERT_THAT(opened, IsOk());
  File file = *std::move(opened);
  file = *File::Open(folder.Write("g", "xyz"));
  std::string text(3, ' ');
  ASSERT_THAT(file.ReadAt(0, std::as_writable_bytes(std::span(text))), IsOk());
  EXPECT_EQ(text, "xyz");
}

TEST(FileTest, NamesTheFileItCannotOpen) {
  TempFolder folder;
  EXPECT_THAT(File::Open(folder.Path("absent")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder.Path("absent"))));
}

TEST(FileTest, RefusesFoldersAndPipesWithoutWaiting) {
  TempFolder folder;
  EXPECT_THAT(File::Open(folder.path()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("regular file")));
  ASSERT_EQ(mkfifo(folder.Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(File::Open(folder.Path("pipe")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("regular file")));
}

TEST(FileTest, SaysHowFarAShortenedFileReaches) {
  TempFolder folder;
  auto file = File::Open(folder.Write("f", "abcdef"));
  ASSERT_THAT(file, IsOk());
  folder.Write("f", "ab");
  std::vector<std::byte> bytes(6);
  EXPECT_THAT(file->ReadAt(0, bytes),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(folder.Path("f")), HasSubstr("expected at least 6 bytes"),
                             HasSubstr("found 2"))));
}

TEST(FileTest, ReadsTextUpToALimit) {
  TempFolder folder;
  const std::string path = folder.Write("f", "12345");
  EXPECT_THAT(ReadTextFile(path, 5), IsOkAndHolds("12345"));
  EXPECT_THAT(ReadTextFile(path, 4), StatusIs(absl::StatusCode::kInvalidArgument,
                                              AllOf(HasSubstr("5 bytes"), HasSubstr("at most 4"))));
}

std::string Sha256Of(const std::string& text) {
  TempFolder folder;
  return *FileSha256(*File::Open(folder.Write("f", text)));
}

// The examples of FIPS 180-2; the last one is longer than one piece of the reader.
TEST(FileTest, HashesAsThePublishedExamples) {
  EXPECT_EQ(Sha256Of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(FileTest, HashesFilesLongerThanOneRead) {
  EXPECT_EQ(Sha256Of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // 3,000,000 × 'a', computed with sha256sum.
  EXPECT_EQ(Sha256Of(std::string(3'000'000, 'a')),
            "2a152c894398719c0570f83fac34ac03a0f6e8e474b995c2403aa5434f7b9dd4");
}

// The digest of FIPS 180-4's example.
TEST(Sha256Test, KnowsAnExampleOfTheStandard) {
  EXPECT_EQ(Sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace encoderd
