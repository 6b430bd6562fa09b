#include "deploy/client/load/arrivals.h"

#include <cmath>

namespace encoderd::client {

double UnitRandom(std::mt19937_64& random) {
  return std::ldexp(static_cast<double>(random() >> 11), -53);
}

absl::Duration ArrivalSchedule::Next() {
  if (arrival_ == Arrival::kEven) {
    // Multiplied, not added up: a million roundings would shift the rate.
    seconds_ = static_cast<double>(sent_) / rate_;
  } else {
    seconds_ -= std::log1p(-UnitRandom(random_)) / rate_;
  }
  ++sent_;
  return absl::Nanoseconds(std::llround(seconds_ * 1e9));
}

absl::Duration WithSpike(absl::Duration steady, const Spike& spike) {
  if (steady < spike.begin) return steady;
  const absl::Duration into = (steady - spike.begin) / spike.factor;
  const absl::Duration span = spike.end - spike.begin;
  if (into < span) return spike.begin + into;
  return steady - span * spike.factor + span;
}

}  // namespace encoderd::client
