// picture.h — a PNG as its pixels, for tests of what is drawn.
#pragma once

#include <cairo.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

namespace encoderd::client {

class Picture {
 public:
  explicit Picture(const std::string& path)
      : surface_(cairo_image_surface_create_from_png(path.c_str()), cairo_surface_destroy) {}

  // 0 where the file is no picture.
  int width() const { return cairo_image_surface_get_width(surface_.get()); }
  int height() const { return cairo_image_surface_get_height(surface_.get()); }

  // 0xRRGGBB.
  uint32_t At(int x, int y) const {
    uint32_t pixel;
    std::memcpy(&pixel,
                cairo_image_surface_get_data(surface_.get()) +
                    y * cairo_image_surface_get_stride(surface_.get()) + 4 * x,
                sizeof(pixel));
    return pixel & 0xffffff;
  }

  // How many pixels have exactly this colour.
  int Count(uint32_t colour) const {
    int count = 0;
    for (int y = 0; y < height(); ++y) {
      for (int x = 0; x < width(); ++x) count += At(x, y) == colour;
    }
    return count;
  }

 private:
  std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)> surface_;
};

}  // namespace encoderd::client
