#include "deploy/client/attention_figure.h"

#include <cairo.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/client/colour_map.h"
#include "deploy/client/drawing.h"
#include "deploy/client/labels.h"
#include "engine/status_macros.h"

namespace encoderd::client {
namespace {

constexpr int kMargin = 20;      // around everything, and between axis words and labels
constexpr int kGap = 16;         // between panels
constexpr int kPanelTitle = 26;  // height above each panel
constexpr int kFigureTitle = 36;
constexpr int kBarWidth = 16;
constexpr int kLabelledCell = 15;    // the least that keeps two lines of kLabelFont apart
constexpr int kMaxCell = 120;        // a map of one token need not fill a screen
constexpr int kLeastPitch = 130;     // room for "layer 00, head 00" above a narrow map
constexpr int kLeastBar = 120;       // room for the ticks of the colour bar beside a flat map
constexpr int kPanelTarget = 320;    // a comfortable map
constexpr int kLabelledTokens = 64;  // more words than that are not read
constexpr int kLabelledExtent = 4096;
constexpr int kMaxExtent = 16384;  // half of what a cairo surface can have

// What stands at an axis: a text at the middle of a cell.
struct AxisLabel {
  int64_t index = 0;
  std::string text;
};

// Token labels for all, or numbers at a nice distance.
std::vector<AxisLabel> AxisLabels(const AttentionFigure& figure, const FigureLayout& layout,
                                  std::span<const int32_t> tokens) {
  std::vector<AxisLabel> labels;
  const int64_t step =
      layout.labelled ? 1 : static_cast<int64_t>(NiceStep(std::ceil(40.0 / layout.cell)));
  for (int64_t i = 0; i < static_cast<int64_t>(tokens.size()); i += step) {
    const int32_t token = tokens[static_cast<size_t>(i)];
    labels.push_back({i, layout.labelled
                             ? DisplayText(figure.token_labels[static_cast<size_t>(token)])
                             : absl::StrCat(token)});
  }
  return labels;
}

// Draws one figure; holds what every part of it needs.
class Painter {
 public:
  Painter(const AttentionFigure& figure, const FigureLayout& layout);

  absl::Status Draw(const std::string& path);

 private:
  void DrawPanel(size_t index);
  void DrawMap(std::span<const float> weights, double x, double y);
  void DrawRowAxis(double x, double y);
  void DrawColumnAxis(double x, double y);
  void DrawColourBar(double x, double y, double height);
  double Middle(int64_t index) const { return (static_cast<double>(index) + 0.5) * layout_.cell; }

  const AttentionFigure& figure_;
  const FigureLayout layout_;
  std::vector<AxisLabel> row_labels_;
  std::vector<AxisLabel> column_labels_;
  bool upwards_ = false;  // column labels are wider than a cell
  double row_axis_ = 0;   // widths of the axes: the word, the labels, the ticks
  double column_axis_ = 0;
  float largest_ = 0;
  std::unique_ptr<Canvas> canvas_;
};

Painter::Painter(const AttentionFigure& figure, const FigureLayout& layout)
    : figure_(figure), layout_(layout) {
  std::vector<int32_t> columns(figure.token_labels.size());
  for (size_t i = 0; i < columns.size(); ++i) columns[i] = static_cast<int32_t>(i);
  row_labels_ = AxisLabels(figure, layout, figure.query_rows);
  column_labels_ = AxisLabels(figure, layout, columns);
  for (const AttentionPanel& panel : figure.panels) {
    for (const float weight : panel.weights) largest_ = std::max(largest_, weight);
  }
  if (largest_ <= 0) largest_ = 1;
}

absl::Status Painter::Draw(const std::string& path) {
  // Text is measured on a scratch surface, because the picture's size follows from it.
  canvas_ = std::make_unique<Canvas>(1, 1);
  SelectFont(canvas_->context(), kLabelFont, CAIRO_FONT_WEIGHT_NORMAL);
  double row_text = 0;
  double column_text = 0;
  for (const AxisLabel& label : row_labels_) {
    row_text = std::max(row_text, TextWidth(canvas_->context(), label.text));
  }
  for (const AxisLabel& label : column_labels_) {
    column_text = std::max(column_text, TextWidth(canvas_->context(), label.text));
  }
  upwards_ = layout_.labelled && column_text > layout_.cell - 3;
  row_axis_ = kMargin + row_text + 2 * kTick;
  column_axis_ = kMargin + (upwards_ ? column_text : kLabelFont) + 2 * kTick;

  const double grid_width = figure_.grid_columns * layout_.column_pitch - kGap;
  const double grid_height =
      figure_.grid_rows() * (layout_.panel_height + kPanelTitle + kGap) - kGap;
  const double bar_height = std::clamp<double>(grid_height - kPanelTitle, kLeastBar, kPanelTarget);
  const double bar_area = kMargin + kBarWidth + 3 * kTick + 4 * kLabelFont + kMargin;
  SelectFont(canvas_->context(), kFigureFont, CAIRO_FONT_WEIGHT_BOLD);
  const double width =
      std::max(row_axis_ + grid_width + bar_area, TextWidth(canvas_->context(), figure_.title)) +
      2 * kMargin;
  const double height =
      2 * kMargin + kFigureTitle + std::max(grid_height + column_axis_, kPanelTitle + bar_height);

  canvas_ = std::make_unique<Canvas>(width, height);
  SelectFont(canvas_->context(), kFigureFont, CAIRO_FONT_WEIGHT_BOLD);
  DrawText(canvas_->context(), figure_.title, kMargin, kMargin + kFigureFont / 2, Anchor::kBegin);
  for (size_t i = 0; i < figure_.panels.size(); ++i) DrawPanel(i);

  DrawColourBar(kMargin + row_axis_ + grid_width + kMargin, kMargin + kFigureTitle + kPanelTitle,
                bar_height);

  return canvas_->WritePng(path);
}

void Painter::DrawPanel(size_t index) {
  const int row = static_cast<int>(index) / figure_.grid_columns;
  const int column = static_cast<int>(index) % figure_.grid_columns;
  const double x = kMargin + row_axis_ + column * layout_.column_pitch;
  const double y =
      kMargin + kFigureTitle + kPanelTitle + row * (layout_.panel_height + kPanelTitle + kGap);
  SelectFont(canvas_->context(), kTitleFont, CAIRO_FONT_WEIGHT_NORMAL);
  DrawText(canvas_->context(), figure_.panels[index].title, x + layout_.panel_width / 2.0,
           y - kPanelTitle / 2.0, Anchor::kMiddle);
  DrawMap(figure_.panels[index].weights, x, y);
  SelectFont(canvas_->context(), kLabelFont, CAIRO_FONT_WEIGHT_NORMAL);
  if (column == 0) DrawRowAxis(x, y);
  // The lowest panel of each column, also where the last row of the grid is not full.
  if (index + static_cast<size_t>(figure_.grid_columns) >= figure_.panels.size()) {
    DrawColumnAxis(x, y + layout_.panel_height);
  }
}

void Painter::DrawMap(std::span<const float> weights, double x, double y) {
  const int columns = static_cast<int>(figure_.tokens());
  const int rows = static_cast<int>(figure_.query_rows.size());
  const Surface map(cairo_image_surface_create(CAIRO_FORMAT_RGB24, columns, rows),
                    cairo_surface_destroy);
  unsigned char* pixels = cairo_image_surface_get_data(map.get());
  if (pixels == nullptr) return;  // the context keeps the error of the source below
  const int stride = cairo_image_surface_get_stride(map.get());
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      const float weight = weights[static_cast<size_t>(row) * static_cast<size_t>(columns) +
                                   static_cast<size_t>(column)];
      const uint32_t colour = Viridis(weight / largest_);
      std::memcpy(pixels + row * stride + column * 4, &colour, sizeof(colour));
    }
  }
  cairo_surface_mark_dirty(map.get());

  cairo_save(canvas_->context());
  cairo_translate(canvas_->context(), x, y);
  cairo_scale(canvas_->context(), layout_.cell, layout_.cell);
  cairo_set_source_surface(canvas_->context(), map.get(), 0, 0);
  cairo_pattern_set_filter(cairo_get_source(canvas_->context()), CAIRO_FILTER_NEAREST);
  cairo_rectangle(canvas_->context(), 0, 0, columns, rows);
  cairo_fill(canvas_->context());
  cairo_restore(canvas_->context());
}

void Painter::DrawRowAxis(double x, double y) {
  for (const AxisLabel& label : row_labels_) {
    const double middle = y + Middle(label.index);
    DrawLine(canvas_->context(), x - kTick, middle, x, middle);
    DrawText(canvas_->context(), label.text, x - 2 * kTick, middle, Anchor::kEnd);
  }
  DrawUpwards(canvas_->context(), "query", x - row_axis_ + kLabelFont / 2,
              y + layout_.panel_height / 2.0, Anchor::kMiddle);
}

void Painter::DrawColumnAxis(double x, double y) {
  for (const AxisLabel& label : column_labels_) {
    const double middle = x + Middle(label.index);
    DrawLine(canvas_->context(), middle, y, middle, y + kTick);
    if (upwards_) {
      DrawUpwards(canvas_->context(), label.text, middle, y + 2 * kTick, Anchor::kEnd);
    } else {
      DrawText(canvas_->context(), label.text, middle, y + 2 * kTick + kLabelFont / 2,
               Anchor::kMiddle);
    }
  }
  DrawText(canvas_->context(), "key", x + layout_.panel_width / 2.0,
           y + column_axis_ - kLabelFont / 2, Anchor::kMiddle);
}

void Painter::DrawColourBar(double x, double y, double height) {
  const int steps = static_cast<int>(height);
  for (int i = 0; i < steps; ++i) {
    const uint32_t colour = Viridis(1 - (static_cast<float>(i) + 0.5f) / static_cast<float>(steps));
    SetColour(canvas_->context(), colour);
    cairo_rectangle(canvas_->context(), x, y + i, kBarWidth, 1);
    cairo_fill(canvas_->context());
  }
  SetColour(canvas_->context(), kInk);
  SelectFont(canvas_->context(), kLabelFont, CAIRO_FONT_WEIGHT_NORMAL);
  const double step = NiceStep(largest_ * std::max(1.0 / 6, 2 * kLabelFont / height));
  for (int i = 0; i * step <= largest_ * 1.0001; ++i) {
    const double level = y + height * (1 - i * step / largest_);
    DrawLine(canvas_->context(), x + kBarWidth, level, x + kBarWidth + kTick, level);
    DrawText(canvas_->context(), absl::StrFormat("%.4g", i * step), x + kBarWidth + 2 * kTick,
             level, Anchor::kBegin);
  }
  DrawUpwards(canvas_->context(), "weight", x + kBarWidth + 3 * kTick + 3.5 * kLabelFont,
              y + height / 2, Anchor::kMiddle);
}

}  // namespace

int AttentionFigure::grid_rows() const {
  return (static_cast<int>(panels.size()) + grid_columns - 1) / grid_columns;
}

absl::StatusOr<FigureLayout> LayOutFigure(const AttentionFigure& figure) {
  const int64_t rows = static_cast<int64_t>(figure.query_rows.size());
  const int64_t longest = std::max(rows, figure.tokens());
  const int64_t grid_longest =
      std::max(figure.grid_columns * figure.tokens(), figure.grid_rows() * rows);
  FigureLayout layout;
  layout.cell = static_cast<int>(
      std::clamp<int64_t>(kPanelTarget / std::max<int64_t>(longest, 1), 1, kMaxCell));
  layout.labelled = longest <= kLabelledTokens && grid_longest * kLabelledCell <= kLabelledExtent;
  if (layout.labelled) layout.cell = std::max(layout.cell, kLabelledCell);
  while (layout.cell > 1 && grid_longest * layout.cell > kLabelledExtent) --layout.cell;
  if (grid_longest * layout.cell > kMaxExtent) {
    return absl::InvalidArgumentError(
        absl::StrCat("picture: expected at most ", kMaxExtent, " weights in a line, got ",
                     grid_longest, ": choose fewer --layers, --heads or --query_rows"));
  }
  layout.panel_width = layout.cell * static_cast<int>(figure.tokens());
  layout.panel_height = layout.cell * static_cast<int>(rows);
  layout.column_pitch = std::max(layout.panel_width + kGap, kLeastPitch);
  return layout;
}

absl::Status DrawAttention(const AttentionFigure& figure, const std::string& path) {
  ASSIGN_OR_RETURN(const FigureLayout layout, LayOutFigure(figure));
  return Painter(figure, layout).Draw(path);
}

}  // namespace encoderd::client
