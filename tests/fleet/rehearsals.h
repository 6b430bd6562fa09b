// rehearsals.h — what happens to a fleet in its life, under load: each replica is restarted, one is
// killed, one is slow. What came of it, to be judged by the caller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/fleet/background_load.h"
#include "tests/fleet/replicas.h"

namespace encoderd::fleet {

// How clients get at the replicas.
struct Path {
  std::string name;
  std::string target;
  bool direct = false;  // those of the replicas themselves
  // Connections that a replica has from those who call it, once it is in use again after a restart.
  double connections = 0;
};

// Every load below is offered on the path's target, whatever its own says.

// One load, and when in it the thing was done, as CallRecord::due counts.
struct Observed {
  client::LoadResult result;
  absl::Duration begin, end;

  int64_t failed() const { return result.offered() - result.answered; }
  // Those that were sent after `since`.
  int64_t FailedOfThoseSentAfter(absl::Duration since) const;
  // Of calls sent before it began, and until it ended.
  double P99Before() const;
  double P99During() const;
  // "OK 12, UNAVAILABLE 3; first: connection refused".
  std::string Text() const;
};

// The same thing as two clients see it, who call at the same time: one takes no for an answer, the
// other tries again as service_config.json says.
struct SeenByBoth {
  Observed strict, retrying;
};

// ---- Rolling restart ----------------------------------------------------------------------------

struct Rolled {
  SeenByBoth seen;
  std::vector<int> exit_codes;
};

// Replaces one replica after the other, each once the one before is in use again. Where one of them
// is not alive, it is started first and stands in for the one that goes, and so on: there are never
// fewer than before. Else each goes and is started again. `load` is offered by either client, for
// `before` beforehand.
Rolled ReplaceAll(Replicas& replicas, const Path& path, client::LoadOptions load,
                  absl::Duration before, Start start);

// ---- Sudden death -------------------------------------------------------------------------------

struct Killed {
  SeenByBoth seen;  // begin: when it was stopped; end: when it was killed
  // Calls that replicas ran beyond one for each call that did not fail: those that were tried again
  // although the first try was, or would have been, answered.
  double surplus = 0;
};

// Stops the first replica long enough to have calls in flight, kills it, and restarts it after a
// second of load without it.
Killed KillOne(Replicas& replicas, const Path& path, client::LoadOptions load);

// ---- A slow one ---------------------------------------------------------------------------------

// Calls of each replica while the first has a third of its time, under a closed loop of so many
// seconds.
std::vector<double> CallsWhileOneIsSlow(Replicas& replicas, const Path& path,
                                        client::LoadOptions load, absl::Duration duration);

}  // namespace encoderd::fleet
