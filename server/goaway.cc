#include "server/goaway.h"

#include <grpc/support/time.h>
#include <grpcpp/alarm.h>

#include <future>
#include <memory>

// grpc_core::Server::SendGoaways(), which gRPC's public headers do not offer. What
// grpc::Server::c_server() returns is that object (CppImplOf in the library), and a member function
// takes it as its first argument. Weak: a library without it leaves a null.
extern "C" void SendGoawaysOfCore(grpc_server* server) asm("_ZN9grpc_core6Server11SendGoawaysEv")
    __attribute__((weak));

namespace encoderd {

void SendGoaways(grpc::Server& server) {
  if (SendGoawaysOfCore == nullptr) return;
  // It needs what a thread of gRPC's own has around it (an ExecCtx): an alarm rings on one.
  // The promise is shared, since the one who fulfils it may still be at it when the other goes on.
  const auto sent = std::make_shared<std::promise<void>>();
  grpc::Alarm alarm;
  alarm.Set(gpr_now(GPR_CLOCK_MONOTONIC), [&server, sent](bool) {
    SendGoawaysOfCore(server.c_server());
    sent->set_value();
  });
  sent->get_future().wait();
}

}  // namespace encoderd
