// drawing.h — what the pictures of encoderctl share: their paper, their type and their file.
//
// Lengths are pixels. A context keeps the first error of what is drawn with it, and draws no more;
// Canvas::WritePng says which it was.
#pragma once

#include <cairo.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace encoderd::client {

inline constexpr double kLabelFont = 12;   // at axes
inline constexpr double kTitleFont = 14;   // of a part of a picture
inline constexpr double kFigureFont = 18;  // of the whole
inline constexpr int kTick = 4;
inline constexpr uint32_t kInk = 0x212121;

using Surface = std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)>;

// White paper with a pen of one pixel in kInk.
class Canvas {
 public:
  // Sizes are rounded up.
  Canvas(double width, double height);

  cairo_t* context() const { return context_.get(); }

  // Errors: kAborted naming the file that cannot be written; kInternal where the drawing
  // itself failed.
  absl::Status WritePng(const std::string& path) const;

 private:
  Surface surface_;
  std::unique_ptr<cairo_t, decltype(&cairo_destroy)> context_;
};

// `colour` is 0xRRGGBB.
void SetColour(cairo_t* context, uint32_t colour);

void SelectFont(cairo_t* context, double size, cairo_font_weight_t weight);
double TextWidth(cairo_t* context, const std::string& text);

enum class Anchor { kBegin, kMiddle, kEnd };

// Text whose optical middle (half the height of an x above the base line) lies at y.
void DrawText(cairo_t* context, const std::string& text, double x, double y, Anchor anchor);
// The same, read from bottom to top.
void DrawUpwards(cairo_t* context, const std::string& text, double x, double y, Anchor anchor);

// A line that fills whole pixels where it is upright or level.
void DrawLine(cairo_t* context, double x0, double y0, double x1, double y1);

// The least of 1, 2, 5, 10, 20, 50 … times a power of ten that is not below `least`.
double NiceStep(double least);

}  // namespace encoderd::client
