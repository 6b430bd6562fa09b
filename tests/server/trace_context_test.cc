// Goal: a traceparent is taken exactly when the specification says so, whatever bytes come.
// Method: a table of texts; random bytes and texts with one character changed, judged by the
//         specification's grammar as a regular expression.
#include "server/trace_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <set>
#include <string>

namespace encoderd {
namespace {

using ::testing::MatchesRegex;

constexpr const char* kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr const char* kSpan = "00f067aa0ba902b7";

struct Case {
  const char* name;
  std::string text;
  bool taken = false;
  bool sampled = false;
};

std::string With(const std::string& version, const std::string& trace, const std::string& span,
                 const std::string& flags) {
  return version + "-" + trace + "-" + span + "-" + flags;
}

TEST(TraceparentTest, IsTakenExactlyWhenTheSpecificationSaysSo) {
  const std::string good = With("00", kTrace, kSpan, "01");
  const Case cases[] = {
      {"sampled", good, true, true},
      {"not sampled", With("00", kTrace, kSpan, "00"), true, false},
      {"flags that 00 does not know", With("00", kTrace, kSpan, "fe"), true, false},
      {"all flags", With("00", kTrace, kSpan, "ff"), true, true},
      {"flags above 9", With("00", kTrace, kSpan, "0b"), true, true},
      {"a later version", With("01", kTrace, kSpan, "01"), true, true},
      {"a later version with more", With("cc", kTrace, kSpan, "01") + "-what-the-future-brings",
       true, true},
      {"a later version with nothing behind the dash", With("cc", kTrace, kSpan, "01") + "-", true,
       true},

      {"nothing", ""},
      {"a dash short", good.substr(0, 54)},
      {"longer", good + "0"},
      {"version 00 with more", good + "-more"},
      {"a later version with more and no dash", With("cc", kTrace, kSpan, "01") + ".more"},
      {"a later version that is short", With("cc", kTrace, kSpan, "0")},
      {"version ff", With("ff", kTrace, kSpan, "01")},
      {"a version of other letters", With("0g", kTrace, kSpan, "01")},
      {"a version in capitals", With("CC", kTrace, kSpan, "01")},
      {"a trace id of zeros", With("00", std::string(32, '0'), kSpan, "01")},
      {"a span id of zeros", With("00", kTrace, std::string(16, '0'), "01")},
      {"a trace id in capitals", With("00", "4BF92F3577B34DA6A3CE929D0E0E4736", kSpan, "01")},
      {"a span id in capitals", With("00", kTrace, "00F067AA0BA902B7", "01")},
      {"flags in capitals", With("00", kTrace, kSpan, "0B")},
      {"a letter beyond f", With("00", "4bf92f3577b34da6a3ce929d0e0e473g", kSpan, "01")},
      {"a short trace id", With("00", std::string(31, 'a'), std::string(17, 'b'), "01")},
      {"other separators", "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01"},
      {"a space in front", " " + good},
      {"a space behind", good + " "},
      {"two of them", good + "," + good},
      {"a zero byte", good.substr(0, 10) + std::string(1, '\0') + good.substr(11)},
      {"very long", std::string(16 << 10, '0')},
      {"a later version that is very long",
       With("01", kTrace, kSpan, "01") + "-" + std::string(16 << 10, 'x'), true, true}};
  for (const Case& one : cases) {
    const auto parsed = Traceparent::Parse(one.text);
    ASSERT_EQ(parsed.has_value(), one.taken) << one.name << ": " << one.text;
    if (!one.taken) continue;
    EXPECT_EQ(parsed->trace_id, kTrace) << one.name;
    EXPECT_EQ(parsed->span_id, kSpan) << one.name;
    EXPECT_EQ(parsed->sampled, one.sampled) << one.name;
    // What is not known is not passed on.
    EXPECT_EQ(parsed->ToString(), With("00", kTrace, kSpan, one.sampled ? "01" : "00")) << one.name;
  }
}

// The specification's words, of any version but ff.
bool IsValid(const std::string& text) {
  static const auto* const version_00 = new std::regex("00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}");
  static const auto* const later =
      new std::regex("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[^]*)?");
  if (!std::regex_match(text, text.starts_with("00") ? *version_00 : *later)) return false;
  return !text.starts_with("ff") && text.substr(3, 32) != std::string(32, '0') &&
         text.substr(36, 16) != std::string(16, '0');
}

TEST(TraceparentTest, AgreesWithTheGrammarOnAnyBytes) {
  std::mt19937 random(20261130);
  const auto draw = [&random](size_t below) {
    return std::uniform_int_distribution<size_t>(0, below - 1)(random);
  };
  const std::string alphabet = "0123456789abcdef-fgF \xff";
  int taken = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string text = With(i % 2 == 0 ? "00" : "01", kTrace, kSpan, "01");
    if (i % 8 == 0) {  // any bytes of any length
      text.resize(draw(80));
      for (char& c : text) c = static_cast<char>(draw(256));
    } else {  // nearly right
      if (i % 8 < 4) text += "-x";
      for (size_t changes = draw(3); changes > 0; --changes) {
        text[draw(text.size())] = alphabet[draw(alphabet.size())];
      }
      text.resize(text.size() - draw(3));
    }
    const auto parsed = Traceparent::Parse(text);
    ASSERT_EQ(parsed.has_value(), IsValid(text)) << text;
    if (!parsed.has_value()) continue;
    ++taken;
    ASSERT_TRUE(Traceparent::Parse(parsed->ToString()).has_value()) << text;
  }
  EXPECT_GT(taken, 20'000);
  EXPECT_LT(taken, 180'000);
}

TEST(RandomIdTest, IsASpanIdLikeNoOther) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = RandomId();
    EXPECT_THAT(id, MatchesRegex("[0-9a-f]{16}"));
    EXPECT_NE(id, std::string(16, '0'));
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 1000);
}

}  // namespace
}  // namespace encoderd
