#include "tests/bench/bars.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/client/drawing.h"

namespace encoderd::bench {
namespace {

using client::Anchor;

constexpr double kMargin = 24;
constexpr double kTitle = 64;  // height of the figure's own lines
constexpr double kPanelWidth = 520;
constexpr double kNames = 150;   // width of the names left of the bars
constexpr double kNumbers = 52;  // width of the numbers right of them
constexpr double kBar = 16;      // height with the air below it
constexpr double kPanelTitle = 30;
constexpr double kPanelAir = 14;

constexpr uint32_t kGrey = 0x757575;
// By precision: this engine's bars, and its peers'.
constexpr uint32_t kOwnColours[] = {0x1f4e79, 0x1b6e5a, 0x7a1f5c};
constexpr uint32_t kPeerColours[] = {0x9dc0e0, 0x98d3bf, 0xdda6c8};
constexpr uint32_t kPale = 0xe4e4e4;

struct Panel {
  std::string model, work;
  std::vector<const Cell*> cells;
};

// Panels in the order of their cells; within one, by precision and then the fastest first.
std::vector<Panel> PanelsOf(const Cells& cells) {
  std::vector<Panel> panels;
  for (const Cell& cell : cells) {
    if (cell.rates.empty()) continue;
    auto panel = std::ranges::find_if(panels, [&](const Panel& each) {
      return each.model == cell.model && each.work == cell.work;
    });
    if (panel == panels.end()) {
      panels.push_back({.model = cell.model, .work = cell.work});
      panel = std::prev(panels.end());
    }
    panel->cells.push_back(&cell);
  }
  for (Panel& panel : panels) {
    std::ranges::sort(panel.cells, {}, [](const Cell* cell) {
      return std::pair(cell->precision, -report::Median(cell->rates));
    });
  }
  return panels;
}

double HeightOf(const Panel& panel) {
  return kPanelTitle + kBar * static_cast<double>(panel.cells.size()) + kPanelAir;
}

uint32_t ColourOf(const Cell& cell) {
  if (!cell.counts) return kPale;
  const auto precision = static_cast<size_t>(cell.precision);
  return cell.engine == kOwn ? kOwnColours[precision] : kPeerColours[precision];
}

void DrawBar(cairo_t* pen, const Cell& cell, double x, double y, double per_token) {
  const auto [least, most] = std::ranges::minmax(cell.rates);
  const double width = report::Median(cell.rates) * per_token;
  const double middle = y + kBar / 2 - 1;
  client::SetColour(pen, ColourOf(cell));
  cairo_rectangle(pen, x, y, width, kBar - 3);
  cairo_fill(pen);
  client::SetColour(pen, client::kInk);
  client::DrawLine(pen, x + least * per_token, middle, x + most * per_token, middle);
  client::SelectFont(pen, client::kLabelFont - 1,
                     cell.engine == kOwn ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  client::DrawText(pen, absl::StrCat(cell.engine, " ", std::string(PrecisionName(cell.precision))),
                   x - 6, middle, Anchor::kEnd);
  client::DrawText(pen, absl::StrFormat("%.1f", report::Median(cell.rates) / 1e3),
                   x + std::max(width, most * per_token) + 6, middle, Anchor::kBegin);
}

void DrawPanel(cairo_t* pen, const Panel& panel, double x, double y) {
  client::SelectFont(pen, client::kTitleFont, CAIRO_FONT_WEIGHT_BOLD);
  client::SetColour(pen, client::kInk);
  client::DrawText(pen, absl::StrCat(panel.model, ", ", panel.work), x, y + kPanelTitle / 2,
                   Anchor::kBegin);
  double most = 0;
  for (const Cell* const cell : panel.cells) most = std::max(most, std::ranges::max(cell->rates));
  const double per_token = (kPanelWidth - kNames - kNumbers) / most;
  for (size_t i = 0; i < panel.cells.size(); ++i) {
    DrawBar(pen, *panel.cells[i], x + kNames, y + kPanelTitle + kBar * static_cast<double>(i),
            per_token);
  }
}

}  // namespace

absl::Status DrawBars(const Cells& cells, const std::string& path) {
  const std::vector<Panel> panels = PanelsOf(cells);
  std::vector<std::string> models;
  std::vector<double> heights;  // of the columns
  for (const Panel& panel : panels) {
    if (models.empty() || models.back() != panel.model) {
      models.push_back(panel.model);
      heights.push_back(0);
    }
    heights.back() += HeightOf(panel);
  }
  const double columns = static_cast<double>(std::max<size_t>(models.size(), 1));
  const double tallest = heights.empty() ? 0 : std::ranges::max(heights);
  client::Canvas canvas(kMargin + columns * (kPanelWidth + kMargin), kTitle + tallest + kMargin);
  cairo_t* const pen = canvas.context();
  client::SelectFont(pen, client::kFigureFont, CAIRO_FONT_WEIGHT_BOLD);
  client::DrawText(pen, "Thousands of real tokens per second", kMargin, 26, Anchor::kBegin);
  client::SelectFont(pen, client::kLabelFont, CAIRO_FONT_WEIGHT_NORMAL);
  client::SetColour(pen, kGrey);
  client::DrawText(pen,
                   "each in its best setting; line: slowest to fastest round; grey: too inexact",
                   kMargin, 48, Anchor::kBegin);
  double x = kMargin - kPanelWidth - kMargin, y = 0;
  std::string model;
  for (const Panel& panel : panels) {
    if (panel.model != model) {
      model = panel.model;
      x += kPanelWidth + kMargin;
      y = kTitle;
    }
    DrawPanel(pen, panel, x, y);
    y += HeightOf(panel);
  }
  return canvas.WritePng(path);
}

}  // namespace encoderd::bench
