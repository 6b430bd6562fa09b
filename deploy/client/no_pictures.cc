#include "deploy/client/attention_figure.h"
#include "deploy/client/load/load_figure.h"
#include "deploy/client/pictures.h"

namespace encoderd::client {

absl::Status RequirePictures() {
  return absl::InvalidArgumentError(
      "this program draws no pictures: expected encoderctl, got encoderctl_slim, which is what "
      "the image carries under that name");
}

absl::Status DrawAttention(const AttentionFigure&, const std::string&) { return RequirePictures(); }

absl::Status DrawLoad(const LoadFigure&, const std::string&) { return RequirePictures(); }

}  // namespace encoderd::client
