// Goal: lines arrive whole and in order, and whatever becomes of the file, nobody who adds one
//       waits or comes to harm.
// Method: files, /dev/full, and named pipes whose other end the tests hold.
#include "server/line_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class LineWriterTest : public ::testing::Test {
 protected:
  LineWriterTest() { std::filesystem::create_directory(folder_); }
  ~LineWriterTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<LineWriter> Open(const std::string& path) {
    auto writer = LineWriter::Open(path, [this](int64_t lines) { dropped_ += lines; });
    EXPECT_THAT(writer, IsOk());
    return *std::move(writer);
  }

  const std::string folder_ = absl::StrCat(::testing::TempDir(), "line_writer_", getpid());
  const std::string path_ = folder_ + "/log";
  std::atomic<int64_t> dropped_ = 0;
};

TEST_F(LineWriterTest, AppendsToWhatIsThere) {
  std::ofstream(path_) << "before\n";
  const auto writer = Open(path_);
  writer->Add("one\n");
  writer->Add("two\n");
  writer->Flush();
  EXPECT_EQ(Contents(path_), "before\none\ntwo\n");
  EXPECT_EQ(dropped_, 0);
}

TEST_F(LineWriterTest, WritesWhatIsLeftWhenItGoes) {
  Open(path_)->Add("one\n");
  EXPECT_EQ(Contents(path_), "one\n");
}

TEST_F(LineWriterTest, WritesByItselfSoonAfter) {
  const auto writer = Open(path_);
  writer->Add("one\n");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (Contents(path_).empty() && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(Contents(path_), "one\n");
}

TEST_F(LineWriterTest, KeepsLinesWholeAndEachThreadsInOrder) {
  constexpr int kThreads = 4, kLines = 2000;
  {
    const auto writer = Open(path_);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kLines; ++i) {
          writer->Add(absl::StrCat(thread, " ", i, std::string(i % 100, '.'), "\n"));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<int> next(kThreads, 0);
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    int thread = -1, number = -1;
    ASSERT_EQ(std::sscanf(line.c_str(), "%d %d", &thread, &number), 2) << line;
    ASSERT_EQ(number, next.at(static_cast<size_t>(thread))++) << line;
    ASSERT_TRUE(line.ends_with(std::string(number % 100, '.'))) << line;
  }
  EXPECT_EQ(next, std::vector<int>(kThreads, kLines));
  EXPECT_EQ(dropped_, 0);
}

TEST_F(LineWriterTest, FollowsItsPathWhenTheFileIsMovedAway) {
  const auto writer = Open(path_);
  writer->Add("one\n");
  writer->Flush();
  std::filesystem::rename(path_, path_ + ".1");
  writer->Add("two\n");
  writer->Flush();
  EXPECT_EQ(Contents(path_ + ".1"), "one\n");
  EXPECT_EQ(Contents(path_), "two\n");

  // The folder takes no new file: on into the old one.
  std::filesystem::rename(folder_, folder_ + ".gone");
  writer->Add("three\n");
  writer->Flush();
  std::filesystem::rename(folder_ + ".gone", folder_);
  EXPECT_EQ(Contents(path_), "two\nthree\n");
  EXPECT_EQ(dropped_, 0);
}

TEST_F(LineWriterTest, SaysWhyAFileCannotBeOpened) {
  const auto ignore = [](int64_t) {};
  EXPECT_THAT(LineWriter::Open(folder_, ignore),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(folder_), HasSubstr("Is a directory"))));
  EXPECT_THAT(LineWriter::Open(folder_ + "/none/log", ignore),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("No such file")));
}

// ---- What cannot be written ---------------------------------------------------------------------

TEST_F(LineWriterTest, CountsWhatAFullDiskDoesNotTake) {
  const auto writer = Open("/dev/full");
  for (int i = 0; i < 3; ++i) writer->Add("line\n");
  writer->Flush();
  EXPECT_EQ(dropped_, 3);
  writer->Add("line\n");
  writer->Flush();
  EXPECT_EQ(dropped_, 4);
}

// As on a disk that fills up and is made free again.
TEST_F(LineWriterTest, ALineThatWasCutOffStaysALineOfItsOwn) {
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {.rlim_cur = 10, .rlim_max = before.rlim_max};
  const auto writer = Open(path_);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  writer->Add("first\n");
  writer->Add("second\n");
  writer->Add("third\n");
  writer->Flush();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(dropped_, 2);
  writer->Add("fourth\n");
  writer->Flush();
  EXPECT_EQ(Contents(path_), "first\nseco\nfourth\n");
  EXPECT_EQ(dropped_, 2);
}

TEST_F(LineWriterTest, APipeThatNobodyReadsHoldsNobodyUp) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const int reader = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  const std::string line = std::string(999, 'x') + "\n";
  constexpr int kLines = 5000;  // 5 MB, of which the pipe and the writer hold two
  const auto start = std::chrono::steady_clock::now();
  {
    const auto writer = Open(path_);
    for (int i = 0; i < kLines; ++i) writer->Add(line);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_GE(dropped_, 1000);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));

  // What the pipe took is whole, and the rest is counted.
  std::string taken;
  char buffer[4096];
  for (ssize_t n; (n = read(reader, buffer, sizeof(buffer))) > 0;) {
    taken.append(buffer, static_cast<size_t>(n));
  }
  close(reader);
  EXPECT_GT(taken.size(), 0);
  EXPECT_EQ(taken.size() % line.size(), 0);
  EXPECT_EQ(static_cast<int64_t>(taken.size() / line.size()) + dropped_, kLines);
}

TEST_F(LineWriterTest, APipeWhoseReaderGoesEndsNothing) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(LineWriter::Open(path_, [](int64_t) {}),  // and does not wait for one
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("No such device")));
  int reader = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const auto writer = Open(path_);
  close(reader);
  writer->Add("one\n");
  writer->Flush();
  EXPECT_EQ(dropped_, 1);

  reader = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  writer->Add("two\n");
  writer->Flush();
  char buffer[16];
  EXPECT_EQ(read(reader, buffer, sizeof(buffer)), 4);
  close(reader);
}

}  // namespace
}  // namespace encoderd
