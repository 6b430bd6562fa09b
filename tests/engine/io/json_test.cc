// Goal:   ParseJson takes JSON and nothing else, and says where and what the fault is.
// Method: one text for each thing that lenient parsers let through.
#include "engine/io/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status_matchers.h"
#include "absl/strings/string_view.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Matcher;
using ::testing::Not;
using ::testing::StartsWith;

void ExpectRefused(std::string_view text, const Matcher<absl::string_view>& message) {
  const auto parsed = ParseJson(text, "config.json");
  EXPECT_THAT(parsed, StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(StartsWith("config.json: "), message)))
      << text.substr(0, 80);
}

std::string Nested(size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(ParseJsonTest, KeepsEveryKindOfValue) {
  const std::string text =
      R"({"a":[1,-2,2.5,true,false,null,"s\u00e9",{}],"b":{"c":[[]],"d":18446744073709551615}})";
  const auto parsed = ParseJson(text, "config.json");
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(*parsed, nlohmann::json::parse(text));
  EXPECT_TRUE((*parsed)["a"][0].is_number_unsigned());
  EXPECT_TRUE((*parsed)["a"][1].is_number_integer());
  EXPECT_TRUE((*parsed)["a"][2].is_number_float());
  EXPECT_THAT(ParseJson(" 7 ", "x"), IsOk());
}

TEST(ParseJsonTest, SaysWhereTheSyntaxIsWrong) {
  ExpectRefused("{\"a\": 1,\n  \"b\": }", HasSubstr("line 2, column 8"));
  ExpectRefused("", HasSubstr("empty input"));
  ExpectRefused("{} x", HasSubstr("line 1, column 4"));
  for (const char* text : {"{'a':1}", "{\"a\":1,}", "[1,]", "// c\n1", "nan", "[01]", "{\"a\"}",
                           "\"\x01\"", "[1", "{\"a\":", "\"open"}) {
    ExpectRefused(text, HasSubstr("parse error"));
  }
}

TEST(ParseJsonTest, NamesTheKeyThatIsThereTwice) {
  ExpectRefused(R"({"a":1,"b":2,"a":1})", HasSubstr("\"a\" is there twice"));
  ExpectRefused(R"({"x":[{"deep":1,"d\u0065ep":2}]})", HasSubstr("\"deep\" is there twice"));
  EXPECT_THAT(ParseJson(R"([{"a":1},{"a":2},{"b":{"a":3}}])", "x"), IsOk());
}

TEST(ParseJsonTest, LimitsNesting) {
  EXPECT_THAT(ParseJson(Nested(kMaxJsonDepth), "x"), IsOk());
  ExpectRefused(Nested(kMaxJsonDepth + 1), HasSubstr("deeper than 64"));
  ExpectRefused(Nested(10'000), HasSubstr("deeper than 64"));
  ExpectRefused(std::string(5'000'000, '['), HasSubstr("deeper than 64"));
  std::string objects;
  for (int i = 0; i < 10'000; ++i) objects += "{\"a\":";
  ExpectRefused(objects, HasSubstr("deeper than 64"));
}

TEST(ParseJsonTest, RefusesWhatIsNotUtf8) {
  ExpectRefused("\"\xff\"", HasSubstr("UTF-8"));
  ExpectRefused("\"\xc0\xaf\"", HasSubstr("UTF-8"));          // overlong
  ExpectRefused("\"\xed\xa0\x80\"", HasSubstr("UTF-8"));      // surrogate
  ExpectRefused("\"\\ud800\"", HasSubstr("surrogate"));       // half an escaped pair
  ExpectRefused("\"\xf0\x9f\x98", HasSubstr("parse error"));  // cut off
}

TEST(ParseJsonTest, RefusesNumbersNoDoubleHolds) {
  ExpectRefused("[1e999]", HasSubstr("overflow"));
}

TEST(ParseJsonTest, KeepsMessagesShortAndPrintable) {
  const std::string text = "\"" + std::string(1'000'000, 'x') + "\xff\"";
  const auto parsed = ParseJson(text, "config.json");
  ASSERT_THAT(parsed, Not(IsOk()));
  EXPECT_LT(parsed.status().message().size(), 300u);
  EXPECT_EQ(Printable("a\n\xff\"b"), "a\\x0a\\xff\"b");
}

}  // namespace
}  // namespace encoderd
