// report.h — runs measurements and prints their table.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/report/measurement.h"

namespace encoderd::report {

struct Arguments {
  Settings settings;
  std::set<std::string> only = {};  // keys; empty = all
};

// Reads --quick (which brings the settings `quick`) and --only=KEY[,KEY]... into `arguments`. False
// where there is another argument or an unknown key.
bool ParseArguments(const std::vector<std::string>& words,
                    const std::vector<Measurement>& measurements, const Settings& quick,
                    Arguments& arguments);

void PrintUsage(const std::string& program, const std::vector<Measurement>& measurements);

// A figure with what all rounds found.
struct Row {
  std::string key;
  Figure figure;
  std::vector<double> ratios;  // empty: not measured
  std::string detail;          // of the round whose ratio is the median; or why it is not measured

  bool Below() const;
};

struct Outcome {
  std::vector<Row> rows;
  double seconds = 0;

  int Below() const;
  std::string Verdict() const;
};

// Rows in the order of the figures. REQUIRES: a round gives one Found per figure.
std::vector<Row> RowsOf(const Measurement& measurement,
                        const std::vector<std::vector<Found>>& rounds);

// One line of the table.
std::string Line(const Row& row);
std::string HeaderLine();

// Runs what the arguments name, one measurement after the other, and prints the lines as they come;
// progress goes to stderr. Each measurement is destroyed when it is done.
Outcome MeasureAll(std::vector<Measurement> measurements, const Arguments& arguments);

nlohmann::json ToJson(const Outcome& outcome);

}  // namespace encoderd::report
