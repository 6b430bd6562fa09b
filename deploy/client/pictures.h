// pictures.h — whether this program can draw.
//
// Two programs are made of the same commands: encoderctl draws with cairo; encoderctl_slim, which
// goes where no picture is looked at, leaves out cairo and the thirty libraries behind it.
// drawing.cc or no_pictures.cc decides which of the two a program is.
#pragma once

#include "absl/status/status.h"

namespace encoderd::client {

// OK, or kInvalidArgument that says what can draw. To be asked before anything is computed or
// measured for a picture.
absl::Status RequirePictures();

}  // namespace encoderd::client
