// Goal: each connection has its own share, given back in full.
#include "server/connection_slots.h"

#include <gtest/gtest.h>

namespace encoderd {
namespace {

TEST(ConnectionSlotsTest, EachConnectionHasItsShare) {
  ConnectionSlots slots(2, 1000);
  EXPECT_TRUE(slots.Take("a"));
  EXPECT_TRUE(slots.Take("a"));
  EXPECT_FALSE(slots.Take("a"));
  EXPECT_TRUE(slots.Take("b"));
  slots.Answered("a", 10);
  EXPECT_TRUE(slots.Take("a"));
  EXPECT_FALSE(slots.Take("a"));
  slots.Give("a", 10);
  EXPECT_FALSE(slots.Take("a"));
}

TEST(ConnectionSlotsTest, AnswersThatAreNotReadCountByTheirBytes) {
  ConnectionSlots slots(2, 1000);
  for (int i = 0; i < 999; ++i) {
    ASSERT_TRUE(slots.Take("a"));
    slots.Answered("a", 1);
  }
  ASSERT_TRUE(slots.Take("a"));
  slots.Answered("a", 1);
  EXPECT_FALSE(slots.Take("a"));
  EXPECT_TRUE(slots.Take("b"));
  slots.Give("a", 1);
  EXPECT_TRUE(slots.Take("a"));
}

TEST(ConnectionSlotsTest, StreamsCountByTheirBytesFromTheirBeginning) {
  ConnectionSlots slots(10, 1000);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(slots.Take("a"));
  EXPECT_TRUE(slots.Hold("a", 400));
  EXPECT_FALSE(slots.Hold("a", 601));
  EXPECT_TRUE(slots.Hold("a", 600));
  EXPECT_FALSE(slots.Take("a"));
  EXPECT_TRUE(slots.Take("b"));
  EXPECT_TRUE(slots.Hold("b", 1));

  slots.Answered("a", 0);  // the first: its bytes are held until they are sent
  EXPECT_FALSE(slots.Take("a"));
  slots.Give("a", 400);
  EXPECT_TRUE(slots.Take("a"));
  slots.Answered("a", 400);
  EXPECT_FALSE(slots.Hold("a", 1));
}

TEST(ConnectionSlotsTest, OneStreamMayBeLargerThanTheShare) {
  ConnectionSlots slots(10, 1000);
  ASSERT_TRUE(slots.Take("a"));
  ASSERT_TRUE(slots.Take("a"));
  EXPECT_TRUE(slots.Hold("a", 5000));
  EXPECT_FALSE(slots.Hold("a", 1));
  EXPECT_FALSE(slots.Take("a"));
}

}  // namespace
}  // namespace encoderd
