#include "server/signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <initializer_list>

namespace encoderd {
namespace {

constexpr int kWake = SIGUSR1;

sigset_t SetOf(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

}  // namespace

Signals::Signals() {
  const sigset_t all = SetOf({SIGTERM, SIGINT, kWake});
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

bool Signals::Wait() const {
  const sigset_t all = SetOf({SIGTERM, SIGINT, kWake});
  int received = 0;
  sigwait(&all, &received);
  return received != kWake;
}

void Signals::Wake() const { kill(getpid(), kWake); }

void Signals::EndAtNext() const {
  // Handlers, not the default action: the kernel spares process 1 of a container from that.
  for (const int number : {SIGTERM, SIGINT}) {
    signal(number, [](int received) { _exit(128 + received); });
  }
  const sigset_t ending = SetOf({SIGTERM, SIGINT});
  pthread_sigmask(SIG_UNBLOCK, &ending, nullptr);
}

}  // namespace encoderd
