// reloaded.h — what was made of a few small files, made anew when they change.
//
// Method:  the contents are compared, not the times: mounted secrets are links that are moved all
//          at once, copies are written one after the other, and some tools touch what they leave
//          as it was. A change counts once two looks in a row have found the same, so that a pair
//          of files which is half written is left alone until it stands.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/io/file.h"
#include "engine/status_macros.h"
#include "server/keys/key_text.h"
#include "server/mutex.h"

namespace encoderd {

struct KeyFile {
  std::string flag;  // without dashes
  std::string path;
};

// Threads: get from any; Look from one at a time.
template <typename T>
class Reloaded {
 public:
  // `files`: in the order that was given, all read.
  using Make = std::function<absl::StatusOr<T>(std::span<const KeyText> files, absl::Time now)>;

  // Errors: those of reading and of `make`.
  static absl::StatusOr<std::unique_ptr<Reloaded>> Load(std::vector<KeyFile> files, Make make,
                                                        absl::Time now) {
    std::unique_ptr<Reloaded> loaded(new Reloaded(std::move(files), std::move(make)));
    ASSIGN_OR_RETURN(const std::vector<KeyText> texts, loaded->Read());
    ASSIGN_OR_RETURN(T value, loaded->make_(texts, now));
    loaded->value_ = std::make_shared<const T>(std::move(value));
    loaded->held_ = loaded->seen_ = Digest(texts);
    return loaded;
  }

  // What holds now. What was taken once stays as it was.
  std::shared_ptr<const T> get() const {
    MutexLock lock(mutex_);
    return value_;
  }

  // Reads the files again. Nothing: they are as they were, do not stand still yet, or have a fault
  // that was told before. OK: what they say holds from now on. An error: it does not, and what
  // held before still does.
  std::optional<absl::Status> Look(absl::Time now) {
    const absl::StatusOr<std::vector<KeyText>> texts = Read();
    const std::string found = texts.ok() ? Digest(*texts) : texts.status().ToString();
    if (std::exchange(seen_, found) != found) return std::nullopt;
    if (found == held_) {
      told_.clear();
      return std::nullopt;
    }
    // The same contents may be judged again: a certificate that is not valid yet becomes so.
    absl::StatusOr<T> value = texts.ok() ? make_(*texts, now) : texts.status();
    if (!value.ok()) {
      const std::string fault = absl::StrCat(found, value.status().ToString());
      if (std::exchange(told_, fault) == fault) return std::nullopt;
      return std::move(value).status();
    }
    held_ = found;
    told_.clear();
    const auto taken = std::make_shared<const T>(*std::move(value));
    MutexLock lock(mutex_);
    value_ = taken;
    return absl::OkStatus();
  }

 private:
  Reloaded(std::vector<KeyFile> files, Make make)
      : files_(std::move(files)), make_(std::move(make)) {}

  absl::StatusOr<std::vector<KeyText>> Read() const {
    std::vector<KeyText> texts;
    for (const KeyFile& file : files_) {
      ASSIGN_OR_RETURN(KeyText text, ReadKeyText(file.flag, file.path));
      texts.push_back(std::move(text));
    }
    return texts;
  }

  // Contents that are compared later are kept as a digest: no copy of a key is kept for it.
  static std::string Digest(const std::vector<KeyText>& texts) {
    std::string digests;
    for (const KeyText& text : texts) digests += Sha256(text.text);
    return digests;
  }

  const std::vector<KeyFile> files_;
  const Make make_;
  std::string held_;  // digest of the files that `value_` is made of
  std::string seen_;  // what the last look found: a digest or an error
  std::string told_;  // the fault that was told last
  mutable Mutex mutex_;
  std::shared_ptr<const T> value_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace encoderd
