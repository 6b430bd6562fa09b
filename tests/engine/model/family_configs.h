// family_configs.h — what the tests of families do with a config.json: change it, read it, see it
// refused.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status_matchers.h"
#include "absl/strings/string_view.h"
#include "engine/model/families.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {

inline EncoderSpec SpecOf(const nlohmann::json& config) {
  auto spec = SpecFromConfig(config);
  EXPECT_THAT(spec.status(), ::absl_testing::IsOk());
  return spec.ok() ? *spec : EncoderSpec{};
}

inline nlohmann::json With(nlohmann::json config, const nlohmann::json& changes) {
  config.update(changes);
  return config;
}

inline nlohmann::json Without(nlohmann::json config, const char* key) {
  config.erase(key);
  return config;
}

inline void ExpectRefused(const nlohmann::json& config,
                          const ::testing::Matcher<absl::string_view>& message) {
  EXPECT_THAT(SpecFromConfig(config).status(),
              ::absl_testing::StatusIs(
                  absl::StatusCode::kInvalidArgument,
                  ::testing::AllOf(::testing::HasSubstr("config.json"), message)));
}

}  // namespace encoderd
