// Goal: connections come in up to the limit, and each that closes makes room for another.
// Method: clients of this process; sockets that the tests take and close as gRPC would.
#include "server/listener.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{20};

// Takes sockets and keeps them until they are asked for.
class Taker {
 public:
  Listener::Take Take() {
    return [this](int fd) {
      MutexLock lock(mutex_);
      taken_.push_back(fd);
      changed_.NotifyAll();
    };
  }
  // The next one, −1 when none comes.
  int Next() {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    MutexLock lock(mutex_);
    while (taken_.empty() && std::chrono::steady_clock::now() < end) {
      changed_.WaitFor(mutex_, kPatience);
    }
    if (taken_.empty()) return -1;
    const int fd = taken_.front();
    taken_.erase(taken_.begin());
    return fd;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<int> taken_ ABSL_GUARDED_BY(mutex_);
};

class Client {
 public:
  explicit Client(int port, const std::string& host = "127.0.0.1") {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    EXPECT_EQ(getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found), 0);
    fd_ = socket(found->ai_family, SOCK_STREAM, 0);
    connected_ = connect(fd_, found->ai_addr, found->ai_addrlen) == 0;
    freeaddrinfo(found);
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  // Waits until the other side closes.
  bool Closed() const {
    pollfd watched = {.fd = fd_, .events = POLLIN, .revents = 0};
    char byte;
    return poll(&watched, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) == 1 &&
           read(fd_, &byte, 1) <= 0;
  }

 private:
  int fd_ = -1;
  bool connected_ = false;
};

class ListenerTest : public ::testing::Test {
 protected:
  void Listen(int max_connections, const std::string& host = "127.0.0.1") {
    auto listener = Listener::Bind("listen", {.host = host, .port = 0}, max_connections);
    ASSERT_THAT(listener, IsOk());
    listener_ = *std::move(listener);
    listener_->Start(taker_.Take());
  }
  std::unique_ptr<Client> Connect() { return std::make_unique<Client>(listener_->port()); }
  void AwaitRefused(int64_t refused) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (listener_->Counts().refused < refused) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
    }
    EXPECT_EQ(listener_->Counts().refused, refused);
  }

  Taker taker_;
  std::unique_ptr<Listener> listener_;
};

TEST(ListenerBindTest, SaysWhatItCannotListenOnAndWhy) {
  const auto first = Listener::Bind("listen", {.host = "127.0.0.1", .port = 0}, 1);
  ASSERT_THAT(first, IsOk());
  const int port = (*first)->port();
  EXPECT_THAT(Listener::Bind("listen", {.host = "127.0.0.1", .port = port}, 1),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(absl::StrCat("--listen: cannot listen on 127.0.0.1:", port)),
                             HasSubstr("Address already in use"))));
  EXPECT_THAT(Listener::Bind("listen", {.host = "192.0.2.1", .port = 0}, 1),  // of documentation
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Cannot assign requested")));
  EXPECT_THAT(Listener::Bind("listen", {.host = "no-such-host.invalid", .port = 0}, 1),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no-such-host.invalid:0")));
}

TEST(ListenerBindTest, GivesAPortBackAtOnce) {
  auto first = Listener::Bind("listen", {.host = "127.0.0.1", .port = 0}, 1);
  ASSERT_THAT(first, IsOk());
  const int port = (*first)->port();
  Taker taker;
  (*first)->Start(taker.Take());
  const Client client(port);
  close(taker.Next());  // first, so that the address stays in TIME_WAIT
  first->reset();
  EXPECT_THAT(Listener::Bind("listen", {.host = "127.0.0.1", .port = port}, 1), IsOk());
}

TEST_F(ListenerTest, ListensOnEveryAddressOfAName) {
  Listen(10, "localhost");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  ASSERT_EQ(getaddrinfo("localhost", nullptr, &hints, &found), 0);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    char host[NI_MAXHOST];
    getnameinfo(one->ai_addr, one->ai_addrlen, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
    const Client client(listener_->port(), host);
    EXPECT_TRUE(client.connected()) << host;
    close(taker_.Next());
  }
  freeaddrinfo(found);
}

TEST(ListenerBindTest, TakesBothFamiliesOnTheAddressForAll) {
  auto listener = Listener::Bind("listen", {.host = "::", .port = 0}, 10);
  if (!listener.ok()) GTEST_SKIP() << "this machine has no IPv6: " << listener.status();
  EXPECT_TRUE(Client((*listener)->port(), "127.0.0.1").connected());
  EXPECT_TRUE(Client((*listener)->port(), "::1").connected());
}

TEST_F(ListenerTest, GivesSocketsThatAreReadyForGrpc) {
  Listen(1);
  const auto client = Connect();
  const int fd = taker_.Next();
  EXPECT_TRUE(fcntl(fd, F_GETFL) & O_NONBLOCK);
  EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
  const auto option = [fd](int name) {
    int value = 0;
    socklen_t length = sizeof(value);
    getsockopt(fd, IPPROTO_TCP, name, &value, &length);
    return value;
  };
  EXPECT_EQ(option(TCP_NODELAY), 1);
  EXPECT_EQ(option(TCP_USER_TIMEOUT), 20'000);
  close(fd);
}

TEST_F(ListenerTest, ClosesTheOneBeyondTheLimit) {
  Listen(2);
  const auto first = Connect();
  const auto second = Connect();
  const int first_fd = taker_.Next();
  const int second_fd = taker_.Next();
  EXPECT_EQ(listener_->Counts().open, 2);
  EXPECT_EQ(listener_->Counts().refused, 0);

  const auto third = Connect();
  EXPECT_TRUE(third->Closed());
  AwaitRefused(1);
  EXPECT_EQ(listener_->Counts().open, 2);
  close(first_fd);
  close(second_fd);
}

TEST_F(ListenerTest, HasAPlaceAgainOnceOneIsClosed) {
  Listen(1);
  for (int round = 0; round < 50; ++round) {
    const auto client = Connect();
    const int fd = taker_.Next();
    ASSERT_NE(fd, -1) << round;
    // Nobody looks here: the next one is let in by the accept thread's own look.
    close(fd);
  }
  EXPECT_EQ(listener_->Counts().open, 0);
}

TEST_F(ListenerTest, HasAPlaceAgainWhenTheNumberIsNotReused) {
  Listen(1);
  const auto first = Connect();
  const int fd = taker_.Next();
  // The lowest free number is now another file's, so that the next connection gets a new one.
  const int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(dup2(other, fd), fd);
  const auto second = Connect();
  const int second_fd = taker_.Next();
  EXPECT_NE(second_fd, -1);
  EXPECT_NE(second_fd, fd);
  close(fd);
  close(other);
  close(second_fd);
}

TEST_F(ListenerTest, DoesNotCountAnotherFileThatHasTheNumber) {
  Listen(3);
  const auto a = Connect();
  const auto b = Connect();
  const auto c = Connect();
  const int fds[] = {taker_.Next(), taker_.Next(), taker_.Next()};
  EXPECT_EQ(listener_->Counts().open, 3);

  const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(file, fds[0]);
  EXPECT_EQ(listener_->Counts().open, 2);
  const int socket_of_others = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  dup2(socket_of_others, fds[1]);
  EXPECT_EQ(listener_->Counts().open, 1);
  close(fds[2]);
  EXPECT_EQ(listener_->Counts().open, 0);
  for (const int fd : {fds[0], fds[1], file, socket_of_others}) close(fd);
}

TEST_F(ListenerTest, StopsAtOnceAndLeavesWhatWasTaken) {
  Listen(2);
  const auto client = Connect();
  const int fd = taker_.Next();
  const auto start = std::chrono::steady_clock::now();
  listener_->Stop();
  listener_->Stop();  // the second time does nothing
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_FALSE(Connect()->connected());
  EXPECT_EQ(listener_->Counts().open, 1);
  EXPECT_EQ(write(fd, "x", 1), 1);
  close(fd);
}

// Lowers the limit of open files to those that are open.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest_free = dup(STDIN_FILENO);
    close(lowest_free);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(lowest_free);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST_F(ListenerTest, WaitsQuietlyForFilesWhenThereAreNone) {
  Listen(10);
  std::unique_ptr<Client> client;
  {
    const int spare = open("/dev/null", O_RDONLY | O_CLOEXEC);  // room for the client alone
    const NoMoreFiles limit;
    close(spare);
    client = Connect();
    EXPECT_TRUE(client->connected());  // by the kernel
    const double before = CpuSeconds();
    poll(nullptr, 0, 300);
    EXPECT_LT(CpuSeconds() - before, 0.1);
    EXPECT_EQ(listener_->Counts().open, 0);
  }
  const int fd = taker_.Next();
  EXPECT_NE(fd, -1);
  close(fd);
}

TEST_F(ListenerTest, StopsWhileItWaitsForFiles) {
  Listen(10);
  const int spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const NoMoreFiles limit;
  close(spare);
  const auto client = Connect();
  listener_->Stop();
  EXPECT_TRUE(client->Closed());
}

}  // namespace
}  // namespace encoderd
