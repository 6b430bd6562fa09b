#include "server/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/log/log.h"
#include "absl/strings/str_cat.h"

namespace encoderd {
namespace {

// How long to leave the kernel alone when it has no files or no memory for a connection.
constexpr int kPauseMilliseconds = 100;

// A peer that acknowledges nothing for so long is gone. gRPC would set this on a socket that it
// listens on itself: its keepalive pings cannot tell, as they wait behind the unsent bytes.
constexpr int kUserTimeoutMilliseconds = 20'000;

void SetPort(sockaddr_storage& address, int port) {
  const in_port_t number = htons(static_cast<in_port_t>(port));
  if (address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = number;
  }
}

int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

// A socket that listens on the address, and in `address` what it has become. Without SO_REUSEPORT:
// a second server on a taken port is a mistake, not a way to share it. Errors: −1 and errno.
int Listen(sockaddr_storage& address, socklen_t length) {
  const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.ss_family == AF_INET6) SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  // Accepted sockets inherit these two.
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMilliseconds);

  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, generic, length) == 0 && listen(fd, SOMAXCONN) == 0 &&
      getsockname(fd, generic, &length) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// Absent when the descriptor is closed or something else.
std::optional<ino_t> SocketInode(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) return std::nullopt;
  return info.st_ino;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(std::string_view flag,
                                                         const ListenAddress& address,
                                                         int max_connections) {
  const std::string name = absl::StrCat("--", std::string(flag));
  const auto fault = [&](const char* got) {
    return absl::UnavailableError(
        absl::StrCat(name, ": cannot listen on ", address.ToString(),
                     ": expected a free port on an own address, got: ", got));
  };
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.host.c_str(), nullptr, &hints, &found); error != 0) {
    return fault(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);

  std::unique_ptr<Listener> listener(new Listener(name, static_cast<size_t>(max_connections)));
  listener->stop_event_ = eventfd(0, EFD_CLOEXEC);
  if (listener->stop_event_ < 0) return fault(strerror(errno));
  listener->port_ = address.port;
  std::set<std::string> seen;  // /etc/hosts may have a line twice
  int missing = 0;  // errno of an address that is not here, as ::1 of localhost without IPv6
  for (; found != nullptr; found = found->ai_next) {
    const auto* const bytes = reinterpret_cast<const char*>(found->ai_addr);
    if (!seen.emplace(bytes, found->ai_addrlen).second) continue;
    sockaddr_storage bound{};
    memcpy(&bound, bytes, found->ai_addrlen);
    SetPort(bound, listener->port_);
    if (const int fd = Listen(bound, found->ai_addrlen); fd >= 0) {
      listener->listening_.push_back(fd);
      listener->port_ = PortOf(bound);
    } else {
      missing = errno;
      if (missing != EADDRNOTAVAIL && missing != EAFNOSUPPORT) return fault(strerror(missing));
    }
  }
  if (listener->listening_.empty()) return fault(strerror(missing));
  return listener;
}

Listener::~Listener() {
  Stop();
  close(stop_event_);
}

void Listener::Start(Take take) {
  thread_ = std::thread([this, take = std::move(take)] { Run(take); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    eventfd_write(stop_event_, 1);
    thread_.join();
  }
  for (const int fd : listening_) close(fd);
  listening_.clear();
}

ConnectionCounts Listener::Counts() {
  MutexLock lock(mutex_);
  DropClosed();
  return {.open = static_cast<int64_t>(open_.size()), .refused = refused_};
}

void Listener::Run(const Take& take) {
  std::vector<pollfd> watched = {{.fd = stop_event_, .events = POLLIN, .revents = 0}};
  for (const int fd : listening_) watched.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  while (true) {
    poll(watched.data(), watched.size(), -1);
    if (watched[0].revents != 0) return;
    for (const pollfd& ready : watched) {
      if (ready.revents != 0) Accept(ready.fd, take);
    }
  }
}

void Listener::Accept(int listening, const Take& take) {
  const int fd = accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;  // it has gone again
    // It waits on, so poll would return at once.
    LOG_EVERY_N_SEC(ERROR, 10) << "Cannot accept a connection; trying on. error="
                               << LogValue(strerror(errno));
    pollfd stop = {.fd = stop_event_, .events = POLLIN, .revents = 0};
    poll(&stop, 1, kPauseMilliseconds);
    return;
  }
  if (!Admit(fd)) {
    close(fd);
    LOG_EVERY_N_SEC(WARNING, 10) << "Closed a new connection to " << flag_
                                 << ": as many are open as may be. max_connections="
                                 << max_connections_;
    return;
  }
  take(fd);
}

bool Listener::Admit(int fd) {
  using Clock = std::chrono::steady_clock;
  MutexLock lock(mutex_);
  open_.erase(fd);  // who had this number has closed it
  if (const auto start = Clock::now(); IsFull() && start >= next_look_) {
    DropClosed();
    // After a look in vain, nine tenths of the time go to other things, however large the limit
    // and however many knock.
    if (IsFull()) next_look_ = Clock::now() + 9 * (Clock::now() - start);
  }
  if (IsFull()) {
    ++refused_;
    return false;
  }
  if (const auto inode = SocketInode(fd); inode.has_value()) open_.emplace(fd, *inode);
  return true;
}

bool Listener::IsFull() const { return open_.size() >= max_connections_; }

void Listener::DropClosed() {
  std::erase_if(open_, [](const auto& one) { return SocketInode(one.first) != one.second; });
}

}  // namespace encoderd
