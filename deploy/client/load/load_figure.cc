#include "deploy/client/load/load_figure.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_format.h"
#include "deploy/client/drawing.h"

namespace encoderd::client {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 560;
constexpr double kLeft = 84;  // of the plot
constexpr double kRight = kWidth - 28;
constexpr double kTop = 104;
constexpr double kBottom = kHeight - 64;
constexpr double kDot = 4.5;  // radius

constexpr uint32_t kGrid = 0xe3e3e3;
constexpr uint32_t kGrey = 0x757575;
constexpr uint32_t kP50 = 0x21908c;  // two colours of the attention maps' scale
constexpr uint32_t kP99 = 0x472d7b;
constexpr uint32_t kBound = 0xc62828;
constexpr uint32_t kBest = 0x2e7d32;
constexpr uint32_t kInBound = 0xeef6ee;

double Milliseconds(absl::Duration time) { return absl::ToDoubleMilliseconds(time); }

// Draws one figure; holds its scales.
class Plot {
 public:
  explicit Plot(const LoadFigure& figure);

  absl::Status Draw(const std::string& path);

 private:
  double X(double rate) const { return kLeft + rate / most_rate_ * (kRight - kLeft); }
  // The upper edge for a latency without end.
  double Y(absl::Duration latency) const;
  void DrawAxes();
  void DrawRateAxis();
  void DrawLatencyAxis();
  void DrawMarks();
  // Words beside the line of a rate, at the side that is asked for where there is room.
  void DrawRateMark(double rate, const std::string& name, uint32_t colour, double y, Anchor side);
  void DrawCurve(absl::Duration LoadFigure::Point::* latency, uint32_t colour);
  void DrawDot(double x, double y, uint32_t colour, bool in_bound);
  void DrawArrow(double x, uint32_t colour);
  void DrawLegend();

  const LoadFigure& figure_;
  double most_rate_ = 0;
  double least_ms_ = 0;
  double most_ms_ = 0;
  Canvas canvas_{kWidth, kHeight};
  cairo_t* const pen_ = canvas_.context();
};

Plot::Plot(const LoadFigure& figure) : figure_(figure) {
  most_rate_ = figure.offline_rate;
  least_ms_ = most_ms_ = Milliseconds(figure.p99_bound);
  for (const LoadFigure::Point& point : figure.points) {
    most_rate_ = std::max(most_rate_, point.rate);
    for (const absl::Duration latency : {point.p50, point.p99}) {
      if (latency == absl::InfiniteDuration()) continue;
      least_ms_ = std::min(least_ms_, Milliseconds(latency));
      most_ms_ = std::max(most_ms_, Milliseconds(latency));
    }
  }
  most_rate_ *= 1.06;
  // Air above and below, so that no dot lies on a frame or on the words at the lower one.
  least_ms_ = std::max(least_ms_, 0.001) / 3;
  most_ms_ *= 2.2;
}

double Plot::Y(absl::Duration latency) const {
  if (latency == absl::InfiniteDuration()) return kTop;
  const double ms = std::max(Milliseconds(latency), least_ms_);
  const double part = std::log(ms / least_ms_) / std::log(most_ms_ / least_ms_);
  return kBottom - part * (kBottom - kTop);
}

absl::Status Plot::Draw(const std::string& path) {
  SelectFont(pen_, kFigureFont, CAIRO_FONT_WEIGHT_BOLD);
  DrawText(pen_, figure_.title, kLeft, 30, Anchor::kBegin);
  SelectFont(pen_, kLabelFont, CAIRO_FONT_WEIGHT_NORMAL);
  SetColour(pen_, kGrey);
  DrawText(pen_, figure_.subtitle, kLeft, 53, Anchor::kBegin);
  DrawAxes();
  DrawMarks();
  DrawCurve(&LoadFigure::Point::p50, kP50);
  DrawCurve(&LoadFigure::Point::p99, kP99);
  DrawLegend();
  return canvas_.WritePng(path);
}

void Plot::DrawAxes() {
  if (figure_.best_rate > 0) {
    SetColour(pen_, kInBound);
    cairo_rectangle(pen_, kLeft, kTop, X(figure_.best_rate) - kLeft, kBottom - kTop);
    cairo_fill(pen_);
  }
  DrawRateAxis();
  DrawLatencyAxis();
  SetColour(pen_, kInk);
  DrawLine(pen_, kLeft, kBottom, kRight, kBottom);
  DrawLine(pen_, kLeft, kTop, kLeft, kBottom);
  DrawText(pen_, "offered rate, calls per second", (kLeft + kRight) / 2, kBottom + 42,
           Anchor::kMiddle);
  DrawUpwards(pen_, "latency from when a call was due, ms", 20, (kTop + kBottom) / 2,
              Anchor::kMiddle);
}

void Plot::DrawRateAxis() {
  const double step = NiceStep(most_rate_ / 10);
  for (int i = 0; i * step <= most_rate_; ++i) {
    const double x = X(i * step);
    SetColour(pen_, kGrid);
    DrawLine(pen_, x, kTop, x, kBottom);
    SetColour(pen_, kInk);
    DrawLine(pen_, x, kBottom, x, kBottom + kTick);
    DrawText(pen_, absl::StrFormat("%.4g", i * step), x, kBottom + 18, Anchor::kMiddle);
  }
}

void Plot::DrawLatencyAxis() {
  // 1, 2, 5, 10 …: the least of them that lies in the plot, and on.
  for (double ms = NiceStep(least_ms_); ms <= most_ms_; ms = NiceStep(ms * 1.5)) {
    const double y = Y(absl::Milliseconds(ms));
    SetColour(pen_, kGrid);
    DrawLine(pen_, kLeft, y, kRight, y);
    SetColour(pen_, kInk);
    DrawLine(pen_, kLeft - kTick, y, kLeft, y);
    DrawText(pen_, absl::StrFormat("%.4g", ms), kLeft - 2 * kTick, y, Anchor::kEnd);
  }
}

void Plot::DrawMarks() {
  constexpr double kDashes[] = {6, 4};
  cairo_set_dash(pen_, kDashes, 2, 0);
  SetColour(pen_, kBound);
  const double bound = Y(figure_.p99_bound);
  DrawLine(pen_, kLeft, bound, kRight, bound);
  SetColour(pen_, kGrey);
  DrawLine(pen_, X(figure_.offline_rate), kTop, X(figure_.offline_rate), kBottom);
  cairo_set_dash(pen_, nullptr, 0, 0);

  SetColour(pen_, kBound);
  DrawText(pen_, absl::StrFormat("bound %.4g ms", Milliseconds(figure_.p99_bound)), kLeft + 8,
           bound - 9, Anchor::kBegin);
  DrawRateMark(figure_.offline_rate, "offline", kGrey, kBottom - 28, Anchor::kBegin);
  if (figure_.best_rate > 0) {
    SetColour(pen_, kBest);
    DrawLine(pen_, X(figure_.best_rate), kTop, X(figure_.best_rate), kBottom);
    DrawRateMark(figure_.best_rate, "in bound up to", kBest, kBottom - 12, Anchor::kEnd);
  }
}

void Plot::DrawRateMark(double rate, const std::string& name, uint32_t colour, double y,
                        Anchor side) {
  constexpr double kAir = 8;
  const std::string text = absl::StrFormat("%s %.4g/s", name, rate);
  const double room = TextWidth(pen_, text) + kAir;
  if (X(rate) + room > kRight) side = Anchor::kEnd;
  if (X(rate) - room < kLeft) side = Anchor::kBegin;
  SetColour(pen_, colour);
  DrawText(pen_, text, X(rate) + (side == Anchor::kBegin ? kAir : -kAir), y, side);
}

void Plot::DrawCurve(absl::Duration LoadFigure::Point::* latency, uint32_t colour) {
  SetColour(pen_, colour);
  cairo_set_line_width(pen_, 2);
  cairo_new_path(pen_);  // text leaves a point behind
  for (const LoadFigure::Point& point : figure_.points) {
    cairo_line_to(pen_, X(point.rate), Y(point.*latency));
  }
  cairo_stroke(pen_);
  cairo_set_line_width(pen_, 1);
  for (const LoadFigure::Point& point : figure_.points) {
    if (point.*latency == absl::InfiniteDuration()) {
      DrawArrow(X(point.rate), colour);
    } else {
      DrawDot(X(point.rate), Y(point.*latency), colour, point.*latency <= figure_.p99_bound);
    }
  }
}

// Full within the bound, else hollow.
void Plot::DrawDot(double x, double y, uint32_t colour, bool in_bound) {
  cairo_new_path(pen_);
  cairo_arc(pen_, x, y, kDot, 0, 2 * std::numbers::pi);
  SetColour(pen_, in_bound ? colour : 0xffffff);
  cairo_fill_preserve(pen_);
  SetColour(pen_, colour);
  cairo_set_line_width(pen_, 2);
  cairo_stroke(pen_);
  cairo_set_line_width(pen_, 1);
}

void Plot::DrawArrow(double x, uint32_t colour) {
  SetColour(pen_, colour);
  cairo_move_to(pen_, x, kTop - 10);
  cairo_line_to(pen_, x - 6, kTop + 1);
  cairo_line_to(pen_, x + 6, kTop + 1);
  cairo_close_path(pen_);
  cairo_fill(pen_);
}

void Plot::DrawLegend() {
  constexpr double kY = 78;
  double x = kLeft;
  const auto name = [&](const std::string& text) {
    SetColour(pen_, kInk);
    DrawText(pen_, text, x, kY, Anchor::kBegin);
    x += TextWidth(pen_, text) + 28;
  };
  for (const auto& [text, colour] : {std::pair("p50", kP50), std::pair("p99", kP99)}) {
    SetColour(pen_, colour);
    cairo_set_line_width(pen_, 2);
    DrawLine(pen_, x, kY, x + 26, kY);
    DrawDot(x + 13, kY, colour, /*in_bound=*/true);
    x += 34;
    name(text);
  }
  DrawDot(x + kDot, kY, kP99, /*in_bound=*/false);
  x += 18;
  name("above the bound");
  cairo_save(pen_);
  cairo_translate(pen_, 0, kY - kTop + 4);
  DrawArrow(x + 6, kP99);
  cairo_restore(pen_);
  x += 20;
  name("so many calls failed that it has no end");
}

}  // namespace

absl::Status DrawLoad(const LoadFigure& figure, const std::string& path) {
  return Plot(figure).Draw(path);
}

}  // namespace encoderd::client
