// server.h — the gRPC server with everything behind it, from the first connection to the last.
//
// Role:    wires service, health, reflection, batcher, engine and watchdog together. main.cc gives
//          it options and signals.
//
//   ASSIGN_OR_RETURN(auto server, Server::Listen(options, *metrics));   // health: NOT_SERVING
//   RETURN_IF_ERROR(server->Load(load_model));                          // health: SERVING
//   … until a signal comes …
//   server->Drain();                                                    // health: NOT_SERVING
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/batching/clock.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/served_model.h"

namespace encoderd {

// Reads the model that the options name. Called once, on the thread that calls Server::Load.
using ModelLoader = std::function<absl::StatusOr<ServedModel>()>;

// Threads: one method at a time, from any thread.
class Server {
 public:
  // Binds the address and answers from now on: health says NOT_SERVING, calls get UNAVAILABLE.
  // `metrics` and `clock` must outlive the server. Errors: kInvalidArgument with every fault of the
  // key files that the options name, or when another file cannot be opened; kUnavailable when an
  // address cannot be bound; kInternal when gRPC does not start. REQUIRES: options.workers is at
  // least 1.
  static absl::StatusOr<std::unique_ptr<Server>> Listen(const Options& options, Metrics& metrics,
                                                        Clock& clock = SteadyClock());

  // Ends every call at once, then waits for running batches.
  virtual ~Server() = default;

  // Loads the model, warms the workers up and takes calls. Errors: the loader's, a worker's.
  // REQUIRES: called at most once.
  virtual absl::Status Load(const ModelLoader& load_model) = 0;

  // Says NOT_SERVING, serves on for drain_delay, then refuses new calls, lets the accepted ones
  // finish and closes every connection. What is left after drain_timeout ends with UNAVAILABLE.
  // False: something was left, perhaps a batch that still runs and that the destructor would wait
  // for.
  virtual bool Drain() = 0;

  virtual int port() const = 0;
  virtual int health_port() const = 0;  // 0: health has no port of its own
};

// The name under which a folder's model is served: that of the folder.
std::string ModelName(const std::string& model_dir);

// "0.1.0"
std::string Version();

}  // namespace encoderd
