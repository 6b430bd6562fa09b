// weight_files.h — the weights of a model folder: one safetensors file, or several that an index
// names, as one list of tensors.
//
// Role:   between the files (io/safetensors.h) and the checkpoint: which files are opened, and
//         which of them holds which name. What a tensor means is the checkpoint's business.
// Source: huggingface transformers, save_pretrained: model.safetensors; or several files and
//         model.safetensors.index.json, {"weight_map": {name of tensor: name of file}}.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/io/safetensors.h"
#include "engine/model/faults.h"

namespace encoderd {

// Movable; reads may run concurrently.
class WeightFiles {
 public:
  // The largest published models have some 200.
  static constexpr size_t kMaxShards = 256;

  // One file, wherever it lies; implicit, since a file is a set of one.
  WeightFiles(SafetensorsFile file);

  // The folder's weights. With model.safetensors.index.json: the files that its weight_map names,
  // and no other; without: model.safetensors. Errors go into the report: kNotFound when there are
  // no weights, saying what is there in their place; kInvalidArgument when the index is no index,
  // names a path outside the folder or more than kMaxShards files; when files are missing (every
  // one is named) or are no safetensors files; when a file lacks a tensor that the index places in
  // it; when two files hold the same one. With an error, nothing when it is unknown which tensors
  // there are; else those of the files that are there, and the others as AddUnread has them.
  static std::optional<WeightFiles> Open(const std::string& dir, FaultReport& report);

  // Adds the tensors of `other`, whose names and files' names get `folder` in front: "2_Dense"
  // makes "linear.weight" into "2_Dense.linear.weight". Errors: kInvalidArgument when a name is
  // there already.
  absl::Status Add(WeightFiles other, const std::string& folder);

  // A tensor that should be there and cannot be read, which has been reported: of no shape and no
  // type.
  void AddUnread(const std::string& name);
  static bool IsUnread(const TensorEntry& entry) { return entry.file == kNoFile; }

  // What messages about the tensors begin with: the file's path, or that of the index.
  const std::string& path() const { return path_; }
  // File by file in the order of their names, in each in the order of the data.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  // nullptr when there is none of this name. Valid as long as nothing is added.
  const TensorEntry* Find(std::string_view name) const;
  // As SafetensorsFile::ReadFp32, from the file that holds the entry.
  absl::Status ReadFp32(const TensorEntry& entry, std::span<float> dst) const;

  // SHA-256 of the bytes of the only file; of several, that of the lines which `sha256sum` prints
  // for them ("digest  name\n"), in the byte order of their names.
  absl::StatusOr<std::string> Sha256() const;

  // Names of safetensors files in the folder that were not opened, sorted: they hold no weights of
  // this model as far as anybody can tell.
  const std::vector<std::string>& strays() const { return strays_; }

 private:
  struct NamedFile {
    std::string name;  // relative to the model folder
    SafetensorsFile file;
  };

  static constexpr size_t kNoFile = ~size_t{0};

  explicit WeightFiles(std::string path) : path_(std::move(path)) {}
  static std::optional<WeightFiles> OpenShards(const std::string& dir, FaultReport& report);
  // Opens what weight_map names.
  void AddShards(const std::string& dir, const std::map<std::string, std::string>& weight_map,
                 Faults& faults);
  // Compares weight_map with what the files hold.
  void CheckPlaces(const std::map<std::string, std::string>& weight_map, Faults& faults);

  // Takes the file over, with `prefix` in front of its tensors' names.
  void AddFile(NamedFile file, const std::string& prefix, Faults& faults);
  void ListStrays(const std::string& dir);

  std::string path_;
  std::vector<NamedFile> files_;
  std::vector<TensorEntry> tensors_;                  // entry.file: index into files_
  std::map<std::string, size_t, std::less<>> index_;  // name → position in tensors_
  std::vector<std::string> strays_;
};

}  // namespace encoderd
