// profile.h — where the time of a pass goes, by the kinds of its operations.
//
// Role:    the forward pass says what it does; whoever wants to know puts a Profile into the thread.
//          Without one, an operation costs a look at a thread-local pointer.
//
//   Profile profile;
//   { const ProfiledThread here(profile); worker->Run(items, NeverAbandoned); }
//   profile[OpKind::kQkv].seconds
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace encoderd {

enum class OpKind {
  kEmbedding,        // words, positions, types, and the norm and the steps behind them
  kQkv,              // the product that gives q, k and v
  kPacking,          // rotary positions; k and v of a sequence that is cut into tiles
  kAttention,        // scores, softmax and the weighted sum
  kAttentionOutput,  // the product behind it, with the residual
  kNorm,
  kFfnIn,    // the product with its activation; both of them where there is a gate
  kFfnOut,   // the product, with the residual
  kOutputs,  // what is written of the answer, heads included
};

inline constexpr std::array<std::string_view, 9> kOpNames = {
    "embedding", "q, k, v", "packing", "attention", "attention output",
    "norms",     "FFN in",  "FFN out", "outputs"};  // by OpKind

struct OpTime {
  int64_t calls = 0;
  double seconds = 0;
  // Of its matrix products, a multiply-add counted as two; 0: it is no matter of these.
  double operations = 0;
};

class Profile {
 public:
  OpTime& operator[](OpKind kind) { return times_[static_cast<size_t>(kind)]; }
  const OpTime& operator[](OpKind kind) const { return times_[static_cast<size_t>(kind)]; }

 private:
  friend class ProfiledThread;
  friend class OpTimer;

  // Inline, so that the look at it is one instruction and not a call.
  static inline thread_local constinit Profile* of_thread_ = nullptr;

  std::array<OpTime, kOpNames.size()> times_;
};

// While it lives, what the thread runs is added to the profile.
class ProfiledThread {
 public:
  explicit ProfiledThread(Profile& profile) { Profile::of_thread_ = &profile; }
  ~ProfiledThread() { Profile::of_thread_ = nullptr; }
  ProfiledThread(const ProfiledThread&) = delete;
  ProfiledThread& operator=(const ProfiledThread&) = delete;
};

// Lives while an operation runs; they do not nest.
class OpTimer {
 public:
  explicit OpTimer(OpKind kind, double operations = 0)
      : profile_(Profile::of_thread_), kind_(kind), operations_(operations) {
    if (profile_ != nullptr) [[unlikely]]
      start_ = Clock::now();
  }
  ~OpTimer() {
    if (profile_ == nullptr) [[likely]]
      return;
    OpTime& time = (*profile_)[kind_];
    ++time.calls;
    time.seconds += std::chrono::duration<double>(Clock::now() - start_).count();
    time.operations += operations_;
  }
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  Profile* const profile_;
  const OpKind kind_;
  const double operations_;
  Clock::time_point start_;
};

}  // namespace encoderd
