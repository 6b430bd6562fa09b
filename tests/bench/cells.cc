#include "tests/bench/cells.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/bars.h"
#include "tests/bench/models.h"

namespace encoderd::bench {
namespace {

using nlohmann::json;

// The distinct values of a field, as they come.
template <typename F>
std::vector<std::string> Distinct(const Cells& cells, F&& field) {
  std::vector<std::string> values;
  for (const Cell& cell : cells) {
    if (std::ranges::find(values, field(cell)) == values.end()) values.push_back(field(cell));
  }
  return values;
}

std::string Who(const Cell& cell) {
  return absl::StrCat(cell.engine, " ", std::string(PrecisionName(cell.precision)));
}

const Cell* Find(const Cells& cells, const std::string& model, const std::string& who,
                 const std::string& work) {
  const auto found = std::ranges::find_if(cells, [&](const Cell& cell) {
    return cell.model == model && Who(cell) == who && cell.work == work;
  });
  return found == cells.end() ? nullptr : &*found;
}

void PrintWho(const Cell& cell) {
  if (cell.rates.empty()) {
    std::printf("  %-18s cannot: %s\n", Who(cell).c_str(), cell.why_not.c_str());
    return;
  }
  std::printf("  %-18s cosine to encoderd fp32: least %.5f, mean %.5f%s; %s; %s\n",
              Who(cell).c_str(), cell.accuracy.least, cell.accuracy.mean,
              cell.counts ? "" : " (outside the bound: not compared with)", cell.version.c_str(),
              cell.kernels.c_str());
}

void PrintTable(const Cells& cells, const std::string& model,
                const std::vector<std::string>& whos) {
  const std::vector<std::string> works =
      Distinct(cells, [](const Cell& cell) { return cell.work; });
  std::printf("\n%s, thousands of tokens per second, each in its best setting\n  %-18s",
              model.c_str(), "");
  for (const std::string& work : works) std::printf("  %14s", work.c_str());
  std::printf("\n");
  for (const std::string& who : whos) {
    std::string line;
    for (const std::string& work : works) {
      const Cell* const cell = Find(cells, model, who, work);
      const bool has = cell != nullptr && !cell->rates.empty();
      absl::StrAppendFormat(
          &line, "  %14s",
          has ? absl::StrFormat("%.2f", report::Median(cell->rates) / 1e3) : std::string("-"));
    }
    std::printf("  %-18s%s\n", who.c_str(), line.c_str());
  }
}

json ToJson(const Cell& cell) {
  json out = {{"model", cell.model},
              {"work", cell.work},
              {"engine", cell.engine},
              {"precision", PrecisionName(cell.precision)},
              {"version", cell.version},
              {"kernels", cell.kernels},
              {"setting", cell.setting},
              {"tokens_per_second", cell.rates},
              {"least_cosine", cell.accuracy.least},
              {"mean_cosine", cell.accuracy.mean},
              {"within_bound", cell.counts}};
  if (!cell.why_not.empty()) out["why_not"] = cell.why_not;
  return out;
}

}  // namespace

void PrintCells(const Cells& cells) {
  for (const std::string& model : Distinct(cells, [](const Cell& cell) { return cell.model; })) {
    const std::vector<std::string> whos = Distinct(cells, Who);
    std::printf("\nContenders on %s\n", model.c_str());
    for (const std::string& who : whos) {
      const auto cell = std::ranges::find_if(
          cells, [&](const Cell& each) { return each.model == model && Who(each) == who; });
      if (cell != cells.end()) PrintWho(*cell);
    }
    PrintTable(cells, model, whos);
  }
}

absl::Status WriteReport(const std::string& machine, const report::Outcome& outcome,
                         const Cells& cells) {
  json all = report::ToJson(outcome);
  all["machine"] = machine;
  all["contenders"] = json::array();
  for (const Cell& cell : cells) all["contenders"].push_back(ToJson(cell));
  const std::string path = BenchFolder() + "/report.json";
  std::ofstream file(path);
  file << all.dump(1) << "\n";
  file.close();
  if (!file.good()) return absl::UnavailableError(path + " cannot be written");
  std::printf("\n%s\n", path.c_str());
  if (cells.empty()) return absl::OkStatus();
  const std::string picture = BenchFolder() + "/bars.png";
  std::printf("%s\n", picture.c_str());
  return DrawBars(cells, picture);
}

}  // namespace encoderd::bench
