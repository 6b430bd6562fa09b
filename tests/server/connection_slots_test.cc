// Goal: each connection has its own share, given back in full.
#include "server/connection_slots.h"

#include <gtest/gtest.h>

namespace encoderd {
namespace {

TEST(ConnectionSlotsTest, EachConnectionHasItsShare) {
  ConnectionSlots slots(2);
  EXPECT_TRUE(slots.Take("a"));
  EXPECT_TRUE(slots.Take("a"));
  EXPECT_FALSE(slots.Take("a"));
  EXPECT_TRUE(slots.Take("b"));
  slots.Answered("a");
  slots.Give("a");
  EXPECT_TRUE(slots.Take("a"));
  EXPECT_FALSE(slots.Take("a"));
}

TEST(ConnectionSlotsTest, AnswersThatAreNotReadCountUpToTwiceTheLimit) {
  ConnectionSlots slots(2);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(slots.Take("a"));
    slots.Answered("a");
  }
  EXPECT_FALSE(slots.Take("a"));
  EXPECT_TRUE(slots.Take("b"));
  slots.Give("a");
  EXPECT_TRUE(slots.Take("a"));
  EXPECT_FALSE(slots.Take("a"));
}

}  // namespace
}  // namespace encoderd
