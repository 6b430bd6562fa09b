#include "deploy/client/drawing.h"

#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "deploy/client/pictures.h"

namespace encoderd::client {

absl::Status RequirePictures() { return absl::OkStatus(); }

Canvas::Canvas(double width, double height)
    : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(std::ceil(width)),
                                          static_cast<int>(std::ceil(height))),
               cairo_surface_destroy),
      context_(cairo_create(surface_.get()), cairo_destroy) {
  SetColour(context(), 0xffffff);
  cairo_paint(context());
  SetColour(context(), kInk);
  cairo_set_line_width(context(), 1);
}

absl::Status Canvas::WritePng(const std::string& path) const {
  if (const cairo_status_t status = cairo_status(context()); status != CAIRO_STATUS_SUCCESS) {
    return absl::InternalError(
        absl::StrCat("drawing the picture failed: ", cairo_status_to_string(status)));
  }
  const cairo_status_t written = cairo_surface_write_to_png(surface_.get(), path.c_str());
  if (written == CAIRO_STATUS_SUCCESS) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat(path, ": cannot be written: ", cairo_status_to_string(written)));
}

void SetColour(cairo_t* context, uint32_t colour) {
  cairo_set_source_rgb(context, ((colour >> 16) & 0xff) / 255.0, ((colour >> 8) & 0xff) / 255.0,
                       (colour & 0xff) / 255.0);
}

void SelectFont(cairo_t* context, double size, cairo_font_weight_t weight) {
  cairo_select_font_face(context, "sans-serif", CAIRO_FONT_SLANT_NORMAL, weight);
  cairo_set_font_size(context, size);
}

double TextWidth(cairo_t* context, const std::string& text) {
  cairo_text_extents_t extents;
  cairo_text_extents(context, text.c_str(), &extents);
  return extents.x_advance;
}

void DrawText(cairo_t* context, const std::string& text, double x, double y, Anchor anchor) {
  cairo_font_extents_t font;
  cairo_font_extents(context, &font);
  const double width = TextWidth(context, text);
  if (anchor == Anchor::kMiddle) x -= width / 2;
  if (anchor == Anchor::kEnd) x -= width;
  cairo_move_to(context, x, y + font.ascent * 0.36);
  cairo_show_text(context, text.c_str());
}

void DrawUpwards(cairo_t* context, const std::string& text, double x, double y, Anchor anchor) {
  cairo_save(context);
  cairo_translate(context, x, y);
  cairo_rotate(context, -std::numbers::pi / 2);
  DrawText(context, text, 0, 0, anchor);
  cairo_restore(context);
}

void DrawLine(cairo_t* context, double x0, double y0, double x1, double y1) {
  // The middle of a pixel is at half a number.
  if (x0 == x1) x0 = x1 = std::floor(x0) + 0.5;
  if (y0 == y1) y0 = y1 = std::floor(y0) + 0.5;
  cairo_move_to(context, x0, y0);
  cairo_line_to(context, x1, y1);
  cairo_stroke(context);
}

double NiceStep(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

}  // namespace encoderd::client
