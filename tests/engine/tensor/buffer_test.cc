// Goal:   memory is aligned, owned once, and a size that cannot be had is an error and not a crash.
// Method: sizes around every threshold, and sizes no machine has.
#include "engine/tensor/buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status_matchers.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(BufferTest, IsAlignedAndWritableAtEverySize) {
  for (size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, (size_t{2} << 20) - 1,
                       size_t{2} << 20, (size_t{2} << 20) + 1}) {
    auto buffer = Buffer::Allocate(bytes, "test");
    ASSERT_THAT(buffer, IsOk());
    EXPECT_EQ(buffer->size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % Buffer::kAlignment, 0u) << bytes;
    std::memset(buffer->data(), 0xff, bytes);
    EXPECT_EQ(buffer->bytes()[bytes - 1], std::byte{0xff});
  }
}

TEST(BufferTest, StartsOnAHugePageWhenItCanFillOne) {
  auto buffer = Buffer::Allocate(size_t{5} << 20, "test");
  ASSERT_THAT(buffer, IsOk());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % (size_t{2} << 20), 0u);
}

TEST(BufferTest, MayBeEmpty) {
  auto buffer = Buffer::Allocate(0, "test");
  ASSERT_THAT(buffer, IsOk());
  EXPECT_EQ(buffer->size(), 0u);
  EXPECT_TRUE(buffer->bytes().empty());
  EXPECT_TRUE(buffer->floats().empty());
}

TEST(BufferTest, IsSeenAsWholeFloats) {
  auto buffer = Buffer::Allocate(11, "test");
  ASSERT_THAT(buffer, IsOk());
  EXPECT_EQ(buffer->floats().size(), 2u);
}

TEST(BufferTest, MovesItsMemory) {
  auto buffer = Buffer::Allocate(128, "test");
  ASSERT_THAT(buffer, IsOk());
  std::byte* data = buffer->data();
  const Buffer moved = *std::move(buffer);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(moved.size(), 128u);
}

TEST(BufferTest, RefusesSizesTheMachineCannotHold) {
  constexpr size_t kMax = std::numeric_limits<size_t>::max();
  for (size_t bytes : {kMax, kMax - 62, kMax / 2, size_t{1} << 50}) {
    EXPECT_THAT(Buffer::Allocate(bytes, "attention map"),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         AllOf(HasSubstr("attention map"), HasSubstr(std::to_string(bytes)))));
  }
}

// Bytes of this process that are in memory.
size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
}

TEST(LastingBufferTest, IsZeroAndTakenOnlyAsItIsWritten) {
  const size_t before = ResidentBytes();
  constexpr size_t kBytes = size_t{256} << 20;
  auto buffer = Buffer::AllocateLasting(kBytes, "test");
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->size(), kBytes);
  EXPECT_LT(ResidentBytes(), before + (size_t{16} << 20));
  EXPECT_EQ(buffer->bytes()[kBytes - 1], std::byte{0});
  auto small = Buffer::AllocateLasting(100, "test");
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_THAT(small->bytes(), ::testing::Each(std::byte{0}));
}

TEST(LastingBufferTest, ManyAreAlignedAndApart) {
  constexpr size_t kCount = 100;
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < kCount; ++i) {
    auto buffer = Buffer::AllocateLasting(i * 12'345, "test");  // to two regions, and to their ends
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->size(), i * 12'345);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % Buffer::kAlignment, 0u);
    std::ranges::fill(buffer->bytes(), static_cast<std::byte>(i));
    buffers.push_back(*std::move(buffer));
  }
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(std::ranges::all_of(
        buffers[i].bytes(), [i](std::byte byte) { return byte == static_cast<std::byte>(i); }));
  }
}

TEST(LastingBufferTest, GivesBackARegionOfWhichNothingIsInUse) {
  constexpr size_t kBytes = size_t{20} << 20;  // of which a region holds one
  const size_t before = ResidentBytes();
  for (int i = 0; i < 8; ++i) {
    auto buffer = Buffer::AllocateLasting(kBytes, "test");
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    std::ranges::fill(buffer->bytes(), std::byte{1});
  }
  EXPECT_LT(ResidentBytes(), before + 2 * kBytes);
}

TEST(LastingBufferTest, RefusesSizesTheMachineCannotHold) {
  EXPECT_THAT(Buffer::AllocateLasting(size_t{1} << 50, "weights"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("weights")));
}

}  // namespace
}  // namespace encoderd
