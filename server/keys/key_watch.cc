#include "server/keys/key_watch.h"

#include <memory>
#include <string>

#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/log.h"

namespace encoderd {
namespace {

// What may be told of the keys.
std::string Describe(const Keys& keys) {
  std::string text;
  if (const std::shared_ptr<const TlsKeys> tls = keys.tls()) {
    absl::StrAppend(&text, " serial=", tls->serial, " not_after=",
                    absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", tls->not_after, absl::UTCTimeZone()));
  }
  if (const std::shared_ptr<const Tokens> tokens = keys.tokens()) {
    absl::StrAppend(&text, " tokens=", tokens->size());
  }
  return text;
}

}  // namespace

KeyWatch::KeyWatch(Keys& keys, Clock& clock, Metrics& metrics)
    : keys_(keys), clock_(clock), metrics_(metrics) {
  if (keys_.tls() == nullptr && keys_.tokens() == nullptr) return;
  LOG(INFO) << "Read the keys." << Describe(keys_);
  Export();
  thread_ = std::thread([this] { Watch(); });
}

KeyWatch::~KeyWatch() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  stopped_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void KeyWatch::Watch() {
  MutexLock lock(mutex_);
  while (!stop_) {
    Look();
    clock_.WaitUntil(stopped_, mutex_, clock_.Now() + kPeriod);
  }
}

void KeyWatch::Look() {
  // Validity is of the wall clock, which may be set while ours runs on.
  for (const absl::Status& change : keys_.Look(absl::Now())) {
    metrics_.KeysReloaded(change.ok());
    if (change.ok()) {
      LOG(INFO) << "Took over changed keys." << Describe(keys_);
      Export();
    } else {
      LOG(ERROR) << "Changed keys are not taken; those from before serve on. error="
                 << LogValue({change.message().data(), change.message().size()});
    }
  }
}

void KeyWatch::Export() const {
  if (const std::shared_ptr<const TlsKeys> tls = keys_.tls()) {
    metrics_.SetCertificateNotAfter(tls->not_after);
  }
}

}  // namespace encoderd
