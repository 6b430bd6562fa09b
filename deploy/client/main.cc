// main.cc — encoderctl, the command-line client of encoderd.
#include <iostream>
#include <string>
#include <vector>

#include "deploy/client/command.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const int code = encoderd::client::RunEncoderctl(
      arguments, {.in = std::cin, .out = std::cout, .err = std::cerr});
  std::cout.flush();
  if (!std::cout) {
    std::cerr << "encoderctl: standard output cannot be written\n";
    return encoderd::client::kExitCannotWrite;
  }
  return code;
}
