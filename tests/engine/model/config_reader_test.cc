// Goal:   no value of a wrong kind and no key that nobody read gets past the reader.
// Method: one object for each kind of value, and what the faults say.
#include "engine/model/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>

#include "absl/status/status_matchers.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The message after `read` has read `object` at the path "here".
template <typename Read>
std::string FaultsOf(const json& object, Read read) {
  Faults faults;
  ConfigReader config(object, "here", &faults);
  read(config);
  return std::string(faults.ToStatus("file").message());
}

TEST(ConfigReaderTest, ReadsValuesAndDefaults) {
  Faults faults;
  const json object = {{"n", 3}, {"x", 0.5}, {"one", 1}, {"b", true}, {"t", "text"}};
  ConfigReader config(object, "", &faults);
  EXPECT_EQ(config.Size("n"), 3);
  EXPECT_EQ(config.Size("absent", 7), 7);
  EXPECT_EQ(config.Positive("x"), 0.5);
  EXPECT_EQ(config.Positive("one"), 1.0);
  EXPECT_EQ(config.Positive("absent", 1e-12), 1e-12);
  EXPECT_TRUE(config.Bool("b"));
  EXPECT_TRUE(config.Bool("absent", true));
  EXPECT_EQ(config.Text("t"), "text");
  config.Finish();
  EXPECT_THAT(faults.ToStatus("file"), IsOk());
}

TEST(ConfigReaderTest, NamesMissingKeysByTheirPath) {
  EXPECT_EQ(FaultsOf(json::object(), [](ConfigReader& config) { config.Size("n"); }),
            "file: here.n is missing");
}

TEST(ConfigReaderTest, RefusesSizesThatAreNone) {
  for (const json& value :
       {json(0), json(-1), json(1.0), json("3"), json(nullptr), json(true), json::array({1}),
        json(kMaxSize + 1), json(UINT64_MAX), json(INT64_MIN), json(1e300)}) {
    EXPECT_THAT(FaultsOf({{"n", value}}, [](ConfigReader& config) { config.Size("n"); }),
                AllOf(HasSubstr("here.n is " + value.dump()), HasSubstr("an integer from 1 to")));
  }
}

TEST(ConfigReaderTest, RefusesNumbersThatAreNotAboveZero) {
  for (const json& value : {json(0), json(-1e-5), json("1e-5"), json(nullptr), json(false)}) {
    EXPECT_THAT(FaultsOf({{"x", value}}, [](ConfigReader& config) { config.Positive("x", 1.0); }),
                HasSubstr("a number above 0"));
  }
}

TEST(ConfigReaderTest, RefusesOtherKinds) {
  EXPECT_THAT(FaultsOf({{"b", 1}}, [](ConfigReader& config) { config.Bool("b"); }),
              HasSubstr("here.b is 1; expected true or false"));
  EXPECT_THAT(FaultsOf({{"t", 1}}, [](ConfigReader& config) { config.Text("t"); }),
              HasSubstr("here.t is 1; expected a string"));
}

TEST(ConfigReaderTest, ChoosesByNameAndListsTheNames) {
  static constexpr NamedValue<int> kNames[] = {{"one", 1}, {"two", 2}};
  Faults faults;
  const json object = {{"c", "two"}, {"wrong", "three"}};
  ConfigReader config(object, "", &faults);
  EXPECT_EQ(config.Choice("c", kNames), 2);
  EXPECT_EQ(config.Choice("absent", kNames, std::optional(1)), 1);
  EXPECT_TRUE(faults.empty());
  config.Choice("wrong", kNames);
  EXPECT_EQ(faults.ToStatus("file").message(),
            "file: wrong is \"three\"; expected one of \"one\", \"two\"");
}

TEST(ConfigReaderTest, LetsASwitchBeAbsentNullOrAsItMust) {
  for (const json& object : {json::object(), json{{"s", nullptr}}, json{{"s", false}}}) {
    EXPECT_EQ(FaultsOf(object, [](ConfigReader& config) { config.Only("s", false); }), "");
  }
  EXPECT_THAT(FaultsOf({{"s", true}}, [](ConfigReader& config) { config.Only("s", false); }),
              AllOf(HasSubstr("here.s is true"), HasSubstr("expected false")));
}

TEST(ConfigReaderTest, FindsEveryKeyThatNobodyRead) {
  const json object = {{"read", 1}, {"harmless", 2}, {"odd", 3}, {"odder", "x"}};
  const std::string message = FaultsOf(object, [](ConfigReader& config) {
    config.Size("read");
    config.Ignore(std::array<std::string_view, 1>{"harmless"});
    config.Finish();
  });
  EXPECT_THAT(message, AllOf(HasSubstr("2 faults"), HasSubstr("here.odd is 3"),
                             HasSubstr("here.odder is \"x\""), Not(HasSubstr("harmless"))));
}

TEST(ConfigReaderTest, NamesTheAbsentKeyThatMayHaveBeenMeant) {
  const auto nearest_to = [](const std::string& key) {
    const std::string message = FaultsOf({{key, 1}, {"hidden_sizes", 1}}, [](ConfigReader& config) {
      config.Size("hidden_sizes");
      config.Size("hidden_size", 1);
      config.Size("num_layers", 1);
      config.Finish();
    });
    const size_t at = message.rfind(' ');
    return message.find("nearest") == std::string::npos ? "" : message.substr(at + 1);
  };
  EXPECT_EQ(nearest_to("hiden_size"), "hidden_size");
  EXPECT_EQ(nearest_to("hidden_sizess"), "hidden_size");  // the other is there
  EXPECT_EQ(nearest_to("n_layers"), "num_layers");
  EXPECT_EQ(nearest_to("layers"), "");
  EXPECT_EQ(nearest_to("h"), "");
  EXPECT_EQ(nearest_to(std::string(100000, 'h')), "");
}

// ---- Keys in doubt ------------------------------------------------------------------------------

TEST(ConfigReaderTest, ASecondReadingDiffersInWhatIsInDoubtAndInNothingElse) {
  constexpr NamedValue<int> kNames[] = {{"one", 1}, {"uno", 1}, {"two", 2}};
  const json object = {{"bad", "x"}, {"good", 5}, {"flag", 3}, {"choice", "none"}};
  struct Values {
    int64_t bad, good, absent;
    bool flag, on;
    int choice, chosen;
    bool operator==(const Values&) const = default;
  };
  const auto read = [&](Faults& faults, const Faults* earlier) {
    ConfigReader config(object, "", &faults, earlier);
    return Values{.bad = config.Size("bad"),
                  .good = config.Size("good"),
                  .absent = config.Size("absent", 7),
                  .flag = config.Bool("flag"),
                  .on = config.Bool("on", true),
                  .choice = config.Choice("choice", kNames),
                  .chosen = config.Choice("chosen", kNames, std::optional(2))};
  };
  Faults first_faults, second_faults;
  const Values first = read(first_faults, nullptr);
  const Values second = read(second_faults, &first_faults);
  EXPECT_NE(first.bad, second.bad);
  EXPECT_NE(first.flag, second.flag);
  EXPECT_NE(first.choice, second.choice);
  EXPECT_EQ(std::tuple(first.good, first.absent, first.on, first.chosen),
            std::tuple(second.good, second.absent, second.on, second.chosen));
  EXPECT_EQ(first_faults.all(), second_faults.all());

  first_faults.Doubt("");  // everything
  const Values third = read(second_faults, &first_faults);
  EXPECT_NE(first.good, third.good);
  EXPECT_NE(first.absent, third.absent);
  EXPECT_NE(first.on, third.on);
  EXPECT_NE(first.chosen, third.chosen);
}

TEST(ConfigReaderTest, AnUnknownKeyPutsAbsentOnesInDoubt) {
  Faults faults;
  const json object = {{"there", 1}, {"unknown", 1}};
  ConfigReader config(object, "here", &faults);
  config.Size("there");
  config.Size("absent", 1);
  EXPECT_FALSE(config.InDoubt("absent"));
  config.Finish();
  EXPECT_TRUE(config.InDoubt("absent"));
  EXPECT_FALSE(config.InDoubt("there"));
}

TEST(ConfigReaderTest, TwoSizesThatDoNotFitAreBothInDoubt) {
  Faults faults;
  const json object = {{"heads", 3}, {"width", 8}};
  ConfigReader config(object, "", &faults);
  config.CheckDivides("heads", config.Size("heads"), "width", config.Size("width"));
  EXPECT_TRUE(config.InDoubt("heads") && config.InDoubt("width"));
  EXPECT_EQ(faults.size(), 1u);
  config.CheckDivides("heads", 3, "width", 8);  // and are then told no more
  EXPECT_EQ(faults.size(), 1u);
}

TEST(ConfigReaderTest, RefusesWhatIsNoObject) {
  for (const json& value : {json::array({1, 2}), json("text"), json(nullptr), json(1)}) {
    const std::string message = FaultsOf(value, [](ConfigReader& config) {
      config.Size("n");
      config.Finish();
    });
    EXPECT_EQ(message, "file: here: expected an object, got " + value.dump());
  }
}

TEST(FaultsTest, ListsTheFirstTwentyAndCountsTheRest) {
  Faults faults;
  EXPECT_THAT(faults.ToStatus("file"), IsOk());
  for (int i = 0; i < 25; ++i) faults.Add("fault" + std::to_string(i));
  EXPECT_THAT(faults.ToStatus("file"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("file: 25 faults:\n  fault0\n"), HasSubstr("fault19"),
                             Not(HasSubstr("fault20")), HasSubstr("and 5 more"))));
}

}  // namespace
}  // namespace encoderd
