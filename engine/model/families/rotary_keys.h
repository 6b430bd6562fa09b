// rotary_keys.h — the keys with which config.json files of Hugging Face transformers describe
// rotary positions.
//
// Source: modeling_rope_utils of transformers 5.24, and the keys that releases before 5 wrote.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/model/config_reader.h"

namespace encoderd {

// The base, from the object that `parent` has at `key` (absent or null: there is none), else from
// the older key of the configuration (empty: there is none), else `otherwise`. Scaled rotations are
// refused by name and value.
inline double ReadRotaryBase(ConfigReader& config, std::string_view older_key, double otherwise,
                             ConfigReader& parent, std::string_view key) {
  const double base = older_key.empty() ? otherwise : config.Positive(older_key, otherwise);
  const nlohmann::json* parameters = parent.Find(key);
  if (parameters == nullptr || parameters->is_null()) return base;
  ConfigReader rotary = parent.Nested(*parameters, parent.PathOf(key));
  rotary.Only("rope_type", "default");
  rotary.Only("type", "default");
  rotary.Only("partial_rotary_factor", 1.0);
  const double own = rotary.Positive("rope_theta", base);
  rotary.Finish();
  return own;
}

// The same where all layers turn alike.
inline double ReadRotaryBase(ConfigReader& config, std::string_view older_key, double otherwise) {
  config.Only("rope_scaling", nullptr);
  return ReadRotaryBase(config, older_key, otherwise, config, "rope_parameters");
}

}  // namespace encoderd
