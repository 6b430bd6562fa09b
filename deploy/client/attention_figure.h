// attention_figure.h — draws attention maps as a grid of heat maps in a PNG.
//
// The maps share one colour scale, from 0 to their largest weight, which a bar explains. Query
// tokens run down, key tokens run to the right. Axes are written at the left column and the bottom
// row of the grid only. Tokens are named while the names fit (up to 64 tokens in a picture of
// moderate size); beyond, the axes carry numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace encoderd::client {

struct AttentionPanel {
  std::string title;
  std::span<const float> weights;  // [query rows, S]
};

struct AttentionFigure {
  std::string title;
  std::vector<int32_t> query_rows;        // the token that each row of a map stands for
  std::vector<std::string> token_labels;  // [S]; any bytes
  int grid_columns = 1;
  std::vector<AttentionPanel> panels;  // row by row of the grid

  int64_t tokens() const { return static_cast<int64_t>(token_labels.size()); }
  int grid_rows() const;
};

// Where things go, in pixels; widths of text are not known here, so margins are not part of it.
struct FigureLayout {
  int cell = 0;          // edge of the square that one weight is drawn as
  bool labelled = true;  // axes carry token labels, else numbers
  int panel_width = 0;
  int panel_height = 0;
  int column_pitch = 0;  // from the left edge of a panel to that of the next
};

// Errors: kInvalidArgument where not even one pixel per weight fits a picture.
absl::StatusOr<FigureLayout> LayOutFigure(const AttentionFigure& figure);

// Writes the picture. REQUIRES: at least one panel; every panel has query_rows × S weights. Errors:
// kInvalidArgument as LayOutFigure; kAborted naming the file that cannot be written;
// kInternal where the drawing itself fails.
absl::Status DrawAttention(const AttentionFigure& figure, const std::string& path);

}  // namespace encoderd::client
