// arrivals.h — when the calls of an open loop are to be sent, whatever becomes of those before.
#pragma once

#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace encoderd::client {

enum class Arrival {
  kPoisson,   // as from many callers who do not know of one another
  kEven,      // one every 1/rate seconds
  kSaturate,  // closed loop: as many in flight as LoadOptions::outstanding says, all the time
};

// A number in [0, 1), every multiple of 2^-53 equally likely.
double UnitRandom(std::mt19937_64& random);

// The times of one run, counted from its start and rising. Pure: the same seed, the same times.
class ArrivalSchedule {
 public:
  // REQUIRES: arrival is kPoisson or kEven; rate, in calls per second, is above 0.
  ArrivalSchedule(Arrival arrival, double rate, uint64_t seed)
      : arrival_(arrival), rate_(rate), random_(seed) {}

  absl::Duration Next();

 private:
  Arrival arrival_;
  double rate_;
  std::mt19937_64 random_;
  int64_t sent_ = 0;
  double seconds_ = 0;  // of the last arrival
};

// A part of a load in which calls come faster.
struct Spike {
  absl::Duration begin, end;
  double factor = 1;  // of the rate; above 0
};

// When the arrival that would be due at `steady` is due with the spike: arrivals keep their order
// and their kind, and in the spike they are `factor` times as close.
absl::Duration WithSpike(absl::Duration steady, const Spike& spike);

}  // namespace encoderd::client
