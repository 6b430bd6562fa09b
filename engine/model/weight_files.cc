#include "engine/model/weight_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/io/file.h"
#include "engine/io/json.h"
#include "engine/model/config_files.h"
#include "engine/status_macros.h"

namespace encoderd {
namespace {

using ::nlohmann::json;

constexpr char kOneFile[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kExtension[] = ".safetensors";

std::string Quoted(std::string_view name) { return absl::StrCat("\"", Printable(name), "\""); }

// Says why a folder has no weights to open.
absl::Status NoWeights(const std::string& dir) {
  for (const char* name : {"pytorch_model.bin", "model.onnx", "tf_model.h5"}) {
    if (!FileExists(JoinPath(dir, name))) continue;
    return absl::NotFoundError(absl::StrCat(dir, ": expected model.safetensors, found ", name,
                                            "; save the weights as safetensors"));
  }
  return absl::NotFoundError(
      absl::StrCat(dir, ": model.safetensors is missing, and so is ", kIndex));
}

// The index's map from a tensor's name to a file's, checked as far as text goes: all its values are
// paths inside the folder. Errors: faults about anything else.
std::optional<std::map<std::string, std::string>> ReadWeightMap(const json& index, Faults& faults) {
  const auto found = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || found == index.end() || !found->is_object() || found->empty()) {
    faults.Add("expected an object with \"weight_map\", an object that is not empty");
    return std::nullopt;
  }
  const size_t before = faults.size();
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : found->items()) {
    if (!file.is_string() || file.get_ref<const std::string&>().empty() ||
        !IsInside(file.get_ref<const std::string&>())) {
      faults.Add(absl::StrCat("weight_map places tensor ", Quoted(tensor), " in ",
                              Printable(file.dump()), "; expected a path inside the folder"));
    } else {
      files.emplace(tensor, file.get<std::string>());
    }
  }
  if (faults.size() > before) return std::nullopt;
  return files;
}

}  // namespace

WeightFiles::WeightFiles(SafetensorsFile file) : WeightFiles(file.file().path()) {
  Faults none;  // one file holds a name once
  AddFile({.name = std::filesystem::path(path_).filename().string(), .file = std::move(file)}, "",
          none);
}

std::optional<WeightFiles> WeightFiles::Open(const std::string& dir, FaultReport& report) {
  if (FileExists(JoinPath(dir, kIndex))) return OpenShards(dir, report);
  const std::string path = JoinPath(dir, kOneFile);
  if (!FileExists(path)) {
    report.Add(NoWeights(dir));
    return std::nullopt;
  }
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  report.Add(file.status());
  if (!file.ok()) return std::nullopt;
  WeightFiles files(*std::move(file));
  files.ListStrays(dir);
  return files;
}

std::optional<WeightFiles> WeightFiles::OpenShards(const std::string& dir, FaultReport& report) {
  WeightFiles files(JoinPath(dir, kIndex));
  const absl::StatusOr<json> index = ReadJsonFile(files.path_);
  report.Add(index.status());
  if (!index.ok()) return std::nullopt;
  Faults faults;
  const auto weight_map = ReadWeightMap(*index, faults);
  if (weight_map.has_value()) {
    files.AddShards(dir, *weight_map, faults);
    files.CheckPlaces(*weight_map, faults);
    files.ListStrays(dir);
  }
  report.Add(faults.ToStatus(files.path_));
  if (files.tensors_.empty()) return std::nullopt;
  return files;
}

void WeightFiles::AddShards(const std::string& dir,
                            const std::map<std::string, std::string>& weight_map, Faults& faults) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  if (names.size() > kMaxShards) {
    faults.Add(
        absl::StrCat("weight_map names ", names.size(), " files; expected at most ", kMaxShards));
    return;
  }
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (!FileExists(JoinPath(dir, name))) {
      missing.push_back(Printable(name));
    } else if (auto file = SafetensorsFile::Open(JoinPath(dir, name)); file.ok()) {
      AddFile({.name = name, .file = *std::move(file)}, "", faults);
    } else {
      faults.Add(std::string(file.status().message()));
    }
  }
  if (!missing.empty()) {
    faults.Add(
        absl::StrCat("files that weight_map names are missing: ", absl::StrJoin(missing, ", ")));
  }
}

void WeightFiles::CheckPlaces(const std::map<std::string, std::string>& weight_map,
                              Faults& faults) {
  std::set<std::string> opened;
  for (const NamedFile& file : files_) opened.insert(file.name);
  for (const auto& [tensor, file] : weight_map) {
    const TensorEntry* entry = Find(tensor);
    if (entry != nullptr && files_[entry->file].name == file) continue;
    // A file that could not be opened has been reported, and may well hold it.
    if (opened.contains(file)) {
      faults.Add(absl::StrCat(
          "weight_map places tensor ", Quoted(tensor), " in ", Printable(file), "; it is ",
          entry == nullptr ? "in none of the files"
                           : absl::StrCat("in ", Printable(files_[entry->file].name))));
    }
    if (entry == nullptr) AddUnread(tensor);
  }
}

void WeightFiles::AddUnread(const std::string& name) {
  if (!index_.emplace(name, tensors_.size()).second) return;
  tensors_.push_back({.name = name, .file = kNoFile});
}

void WeightFiles::AddFile(NamedFile file, const std::string& prefix, Faults& faults) {
  for (TensorEntry entry : file.file.tensors()) {
    entry.name = prefix + entry.name;
    entry.file = files_.size();
    const auto [place, added] = index_.emplace(entry.name, tensors_.size());
    if (added) {
      tensors_.push_back(std::move(entry));
    } else {
      faults.Add(absl::StrCat("tensor ", Quoted(entry.name), " is in ",
                              Printable(files_[tensors_[place->second].file].name), " and in ",
                              Printable(file.name), "; expected it once"));
    }
  }
  files_.push_back(std::move(file));
}

absl::Status WeightFiles::Add(WeightFiles other, const std::string& folder) {
  Faults faults;
  for (NamedFile& file : other.files_) {
    AddFile({.name = absl::StrCat(folder, "/", file.name), .file = std::move(file.file)},
            folder + ".", faults);
  }
  return faults.ToStatus(other.path_);
}

void WeightFiles::ListStrays(const std::string& dir) {
  std::error_code ignored;
  for (const auto& item : std::filesystem::directory_iterator(dir, ignored)) {
    const std::string name = item.path().filename().string();
    const bool opened = std::any_of(files_.begin(), files_.end(),
                                    [&name](const NamedFile& file) { return file.name == name; });
    if (!opened && name != kSelfCheckFile && item.path().extension() == kExtension) {
      strays_.push_back(name);
    }
  }
  std::sort(strays_.begin(), strays_.end());
}

const TensorEntry* WeightFiles::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

absl::Status WeightFiles::ReadFp32(const TensorEntry& entry, std::span<float> dst) const {
  return files_[entry.file].file.ReadFp32(entry, dst);
}

absl::StatusOr<std::string> WeightFiles::Sha256() const {
  if (files_.size() == 1) return FileSha256(files_[0].file.file());
  std::map<std::string, std::string> digests;
  for (const NamedFile& file : files_) {
    ASSIGN_OR_RETURN(digests[file.name], FileSha256(file.file.file()));
  }
  std::string lines;
  for (const auto& [name, digest] : digests) absl::StrAppend(&lines, digest, "  ", name, "\n");
  return encoderd::Sha256(lines);
}

}  // namespace encoderd
